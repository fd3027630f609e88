// Changes of the program, and the reserved bytes that each would gain.
panel({
  id: "gains",
  title: "Change → bytes",
  offered: (app) => app.report.gains?.length > 0,
  build(app, body) {
    const known = app.report.gains.filter((each) => !each.not_known);
    const unknown = app.report.gains.filter((each) => each.not_known);
    if (known.length) body.append(gainsTable(known));
    if (unknown.length) body.append(unknownGains(unknown));
    return {};
  },
});

function gainsTable(gains) {
  const [table, scroll] = [make("table"), make("div", undefined, "scroll")];
  row(table, [["Change", "text"], "Gains", ["Then", "text"]], "th");
  for (const { change, gained_bytes: gained, fits } of gains) {
    const shown = gained === null ? "–" : `${gained < 0 ? "−" : ""}${bytes(Math.abs(gained))}`;
    row(table, [[change, "text"], shown, [gained === null ? "" : fits ? "fits" : "does not fit", "text"]]);
  }
  scroll.append(table);
  return scroll;
}

/** Changes of which the trace tells nothing: out of the way of those that it knows. */
function unknownGains(gains) {
  const details = make("details", undefined, "hint");
  details.append(make("summary", `${counted(gains.length, "change")} that this trace does not tell`));
  const list = make("ul");
  for (const { change, not_known: why } of gains) list.append(make("li", `${change}: ${why}`));
  details.append(list);
  return details;
}
