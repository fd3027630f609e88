// Why requests failed, and what would have helped.
function verdict(yes, text) {
  const line = make("p");
  line.append(make("span", yes ? "yes" : "no", yes ? "yes" : "no"), make("span", `: ${text}`));
  return line;
}

function failureCase(app, each) {
  const { labels } = app;
  const box = make("div", undefined, "case");
  box.append(make("b", `${bytes(each.size)} asked for on stream ${each.stream}${each.time_us ? ` at ${instant(each.time_us)}` : ""}`));
  box.append(make("p", `Then live ${bytes(each.live_bytes)}, reserved ${bytes(each.reserved_bytes)}, free ${bytes(each.free_bytes)}.`));
  if (each.largest_hole) {
    const who = each.blockers.map((blocker) => `${labels.short(blocker.label) || "no name"} (${bytes(blocker.size)})`).join(" and ");
    box.append(make("p", `Largest hole: ${bytes(each.largest_hole.size)} in block ${each.largest_hole.block}${who ? `, between ${who}` : ", a whole block"}.`));
  }
  box.append(verdict(each.fits_after_trim, `would fit after a trim of ${bytes(each.trimmable_bytes)} in empty blocks`));
  box.append(verdict(each.fits_after_defragment, "would fit after defragmentation, with the free bytes of a heap gathered in one place"));
  if (each.moment !== null) {
    box.append(button("Show the map of that moment", "", () => { app.showMap(each.moment); $("map").scrollIntoView({ behavior: "smooth" }); }));
  }
  return box;
}

panel({
  id: "failures",
  title: "Requests that failed",
  offered: (app) => app.report.out_of_memory.length > 0,
  build(app, body) {
    body.append(...app.report.out_of_memory.map((each) => failureCase(app, each)));
    return {};
  },
});
