// Changes of the program, and the reserved bytes that each would gain.
panel({
  id: "gains",
  title: "Change → bytes",
  offered: (app) => app.report.gains?.length > 0,
  build(app, body) {
    const [table, scroll] = [make("table"), make("div", undefined, "scroll")];
    row(table, [["Change", "text"], "Gains", ["Then", "text"]], "th");
    for (const each of app.report.gains) {
      const gained = each.gained_bytes;
      const shown = gained === null ? "–" : `${gained < 0 ? "−" : ""}${bytes(Math.abs(gained))}`;
      const line = row(table, [[each.change, "text"], shown, [gained === null ? "" : each.fits ? "fits" : "does not fit", "text"]]);
      if (each.not_known) line.cells[0].append(make("span", each.not_known, "origin"));
    }
    scroll.append(table);
    body.append(scroll);
    return {};
  },
});
