// Every event in a list that only makes the rows that can be seen.
const EVENT_ROW = 24;
// Browsers refuse elements taller than some ten million pixels; longer lists scroll in larger steps.
const TALLEST = 8e6;

class EventList {
  constructor(app, scroll) {
    Object.assign(this, { app, scroll });
    this.space = make("div", undefined, "space");
    this.page = make("div", undefined, "page");
    scroll.append(this.page, this.space);
    this.first = 0;
    this.tall = Math.min(TALLEST, app.store.n * EVENT_ROW);
    this.space.style.height = `${this.tall}px`;
    this.draw = framed(() => this.paint());
    this.listen();
  }
  get visible() { return Math.max(1, Math.floor(this.scroll.clientHeight / EVENT_ROW)); }
  get furthest() { return Math.max(0, this.app.store.n - this.visible); }
  get furthestScroll() { return Math.max(1, this.tall - this.scroll.clientHeight); }
  listen() {
    this.scroll.addEventListener("scroll", () => {
      if (this.ours) { this.ours = false; return; }
      this.first = Math.round((this.scroll.scrollTop / this.furthestScroll) * this.furthest);
      this.draw();
    });
    this.scroll.addEventListener("wheel", (event) => {
      // The browser's own step is right unless rows are fewer pixels than they should be.
      if (this.tall < TALLEST || event.ctrlKey) return;
      event.preventDefault();
      this.moveTo(this.first + Math.sign(event.deltaY) * Math.max(1, Math.round(Math.abs(event.deltaY) / EVENT_ROW)));
    }, { passive: false });
    this.scroll.addEventListener("keydown", (event) => {
      const step = { ArrowUp: -1, ArrowDown: 1, PageUp: -this.visible, PageDown: this.visible, Home: -Infinity, End: Infinity }[event.key];
      if (step === undefined) return;
      event.preventDefault();
      this.app.select(this.app.event + step);
    });
    this.page.addEventListener("click", (event) => {
      const line = event.target.closest("[data-event]");
      if (line) this.choose(Number(line.dataset.event));
    });
  }
  choose(event) {
    const { store } = this.app;
    const kind = store.kinds[event];
    this.app.allocation = kind === 5 ? store.moveAllocation[store.ref[event]] : [0, 1, 6].includes(kind) ? store.ref[event] : -1;
    this.app.select(event);
    this.app.tell("allocation");
  }
  moveTo(first) {
    this.first = Math.max(0, Math.min(this.furthest, first));
    const top = Math.round((this.first / Math.max(1, this.furthest)) * this.furthestScroll);
    if (this.scroll.scrollTop !== top) { this.ours = true; this.scroll.scrollTop = top; }
    this.draw();
  }
  update(part) {
    if (part !== "event") { this.draw(); return; }
    const { event } = this.app;
    if (event < this.first || event >= this.first + this.visible) this.moveTo(event - Math.floor(this.visible / 2)); else this.draw();
  }
  /** What an event is about: name, bytes and stream, where it has them. */
  about(event) {
    const { store } = this.app;
    const ref = store.ref[event];
    switch (store.kinds[event]) {
      case 0: case 1: case 6: return [this.app.name(ref), bytes(store.size[ref]), String(store.stream[ref])];
      case 5: return this.aboutMove(ref);
      case 4: return ["", bytes(store.failures[ref].size), String(store.failures[ref].stream)];
      case 10: return this.aboutResidence(event, ref);
      case 11: case 12: return ["", bytes(Math.abs(store.away.mapped[ref])), ""];
      case 7: case 8: return ["", bytes(Math.abs(store.driver[ref].bytes)), ""];
      default: return [`block ${ref}`, bytes(store.blockSize[ref]), ""];
    }
  }
  aboutMove(move) {
    const { store } = this.app;
    const index = store.moveAllocation[move];
    return [`${this.app.name(index)} to block ${store.moveBlock[move]}`, bytes(store.size[index]), String(store.stream[index])];
  }
  aboutResidence(event, block) {
    const { away } = this.app.store;
    return [`block ${block}: ${away.say(block, event) || "on the device"}`, bytes(away.changeOf(block, event).bytes), ""];
  }
  /** Block events are the model's where the recording has none. */
  kind(event) {
    const kind = this.app.store.kinds[event];
    return `${KINDS[kind]}${this.app.report.placed_by_model && [2, 3, 7, 8, 9].includes(kind) ? " (model)" : ""}`;
  }
  paint() {
    const { store, event: chosen } = this.app;
    const last = Math.min(store.n, this.first + this.visible + 1);
    this.page.replaceChildren();
    for (let event = this.first; event < last; event += 1) {
      const line = make("div", undefined, `line${event === chosen ? " chosen" : ""}${store.kinds[event] === 4 ? " warn" : ""}`);
      line.dataset.event = event;
      const [name, size, stream] = this.about(event);
      const cells = [[whole(event), "extra"], [instant(store.time[event])], [this.kind(event), "text"], [name, "text"], [size],
        [stream, "extra"], [bytes(store.live[event]), "extra"]];
      line.append(...cells.map(([text, className]) => make("span", text, className)));
      this.page.append(line);
    }
  }
}

panel({
  id: "events",
  title: "Events",
  half: true,
  offered: (app) => app.store !== null,
  build(app, body) {
    const [head, scroll] = [make("div", undefined, "line head"), make("div", undefined, "scroll list")];
    const titles = [["#", "extra"], ["Time"], ["Event", "text"], ["Allocation", "text"], ["Size"], ["Stream", "extra"], ["Live after", "extra"]];
    head.append(...titles.map(([title, className]) => make("span", title, className)));
    scroll.tabIndex = 0;
    scroll.id = "event-list";
    scroll.setAttribute("aria-label", "Events; arrow keys choose");
    body.append(head, scroll);
    const list = new EventList(app, scroll);
    requestAnimationFrame(() => list.update("event"));
    return list;
  },
});
