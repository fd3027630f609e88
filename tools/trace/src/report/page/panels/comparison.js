// Bytes that this and other allocators reserve for the same events.
const HOW = {
  recorded: "recorded: what happened",
  model: "model: computed from its policy",
  replay: "replay: measured while it served the same events",
};

panel({
  id: "comparison",
  title: "Reserved memory, compared",
  offered: (app) => app.report.comparison.length > 0,
  build(app, body) {
    const { figures, comparison } = app.report;
    const { peak_live_bytes: live, peak_reserved_bytes: held } = figures;
    const recorded = held === null ? [] : [{ name: "this recording", origin: "recorded", peak_reserved_bytes: held, ratio: held / live }];
    const [table, scroll] = [make("table"), make("div", undefined, "scroll")];
    row(table, [["Allocator", "text"], "Peak reserved", "÷ peak live", ["Above live", "extra"]], "th");
    for (const each of [...recorded, ...comparison]) {
      const above = Math.max(0, each.peak_reserved_bytes - live);
      const line = row(table, [[each.name, "text"], bytes(each.peak_reserved_bytes), each.ratio.toFixed(3), [bytes(above), "extra"]]);
      line.cells[0].append(make("span", HOW[each.origin], "origin"));
    }
    scroll.append(table);
    body.append(scroll);
    return {};
  },
});
