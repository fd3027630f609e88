// Looking for allocations: how many fit, and the way from one to the next.
class Search {
  constructor(app, field, count) {
    Object.assign(this, { app, field, count });
    field.addEventListener("input", () => app.find(field.value));
    field.addEventListener("keydown", (event) => {
      if (event.key === "Enter") { event.preventDefault(); this.step(event.shiftKey ? -1 : 1); }
      if (event.key === "Escape") { field.value = ""; app.find(""); field.blur(); }
    });
    addEventListener("keydown", (event) => {
      if (event.key !== "/" || event.target.closest?.("input, select, textarea")) return;
      event.preventDefault();
      field.focus();
    }, { signal: app.ends });
  }
  update(part) { if (part === "hits" || part === "allocation" || part === "moment") this.say(); }
  /** Goes to the next hit, or the one before, in order of allocation. */
  step(by) {
    const list = this.app.hits?.list ?? [];
    if (!list.length) return;
    const { allocation, store, event } = this.app;
    const at = allocation >= 0 ? allocation : store.made(event) - 1;
    const after = firstIndex(list.length, (index) => list[index] > at);
    const before = firstIndex(list.length, (index) => list[index] >= at) - 1;
    const next = by > 0 ? after : before;
    this.app.reveal(list[(next + list.length) % list.length]);
  }
  say() {
    const { hits, store } = this.app;
    this.count.textContent = hits ? this.result(hits, store) : "";
  }
  result(hits, store) {
    if (hits.query.wrong.length) return `not understood: ${hits.query.wrong.join(" ")}`;
    if (!store) {
      const spans = this.app.moment.blocks.flatMap((block) => block.spans);
      return `${whole(spans.filter((span) => hits.query.fits(span)).length)} of ${counted(spans.length, "allocation")}`;
    }
    const at = firstIndex(hits.list.length, (index) => hits.list[index] >= this.app.allocation);
    const place = hits.list[at] === this.app.allocation ? `${whole(at + 1)}. of ` : "";
    return `${place}${counted(hits.list.length, "hit")} in ${counted(store.allocations, "allocation")}`;
  }
}

panel({
  id: "search",
  offered: (app) => app.store !== null || app.report.moments.length > 0,
  build(app, body) {
    const [field, count, label] = [make("input"), make("output"), make("label", "Search ")];
    const placeholder = app.labels.any ? "name, tag, size>64M, stream:2 …" : "size>64M, life>10ms, #42 …";
    Object.assign(field, { type: "search", id: "search-field", placeholder, title: SEARCH_HINT, spellcheck: false });
    count.id = "search-count";
    label.append(field);
    const search = new Search(app, field, count);
    const bar = make("div", undefined, "bar");
    bar.append(label);
    if (app.store) bar.append(button("‹", "Hit before (Shift+Enter)", () => search.step(-1)), button("›", "Next hit (Enter)", () => search.step(1)));
    bar.append(count, make("span", SEARCH_HINT, "hint"));
    body.append(bar);
    return search;
  },
});
