// Counts and peaks, as recorded, and before them whether the program fits.
function fitCards(fit) {
  const left = `${fit.left_bytes < 0 ? "−" : ""}${bytes(Math.abs(fit.left_bytes))}`;
  return [["Fits", fit.fits ? "yes" : "no", fit.fits ? "" : "warn"], ["Capacity", bytes(fit.capacity_bytes)],
    ["Left", left, fit.left_bytes < 0 ? "warn" : ""], [`Peak reserved by ${fit.allocator}`, bytes(fit.peak_reserved_bytes)]];
}

function figureCards(app) {
  const { figures, moments, fit } = app.report;
  const cards = [["Peak live", bytes(figures.peak_live_bytes)]];
  if (fit) cards.unshift(...fitCards(fit));
  if (figures.peak_reserved_bytes !== null) {
    const ratio = figures.peak_live_bytes > 0 ? (figures.peak_reserved_bytes / figures.peak_live_bytes).toFixed(3) : "–";
    cards.push(["Peak reserved", bytes(figures.peak_reserved_bytes)], ["Reserved ÷ live", ratio]);
  } else cards.push(["Peak reserved", "not recorded"]);
  for (const line of app.store?.away?.lines ?? []) cards.push([`Peak ${line.name}`, bytes(line.top)]);
  if (!app.store && moments.length) cards.push(["Reserved now", bytes(reservedIn(moments.at(-1)))]);
  cards.push(["Allocations", whole(figures.allocations)], ["Events", whole(figures.events)]);
  if (figures.driver_calls !== null) cards.push(["Driver calls", whole(figures.driver_calls)]);
  cards.push(["Failed requests", whole(figures.oom), figures.oom > 0 ? "warn" : ""]);
  if (figures.duration_us) cards.push(["Duration", duration(figures.duration_us)]);
  return cards;
}

panel({
  id: "figures",
  offered: () => true,
  build(app, body) {
    for (const [name, value, className] of figureCards(app)) {
      const card = make("div", undefined, `figure ${className ?? ""}`);
      card.append(make("span", name), make("b", value));
      body.append(card);
    }
    return {};
  },
});
