// Reads the report and builds the panels that it has something for.
/** What the program had to fit in, as a line; not drawn where it would press everything else to the ground. */
function capacityLine({ fit, figures }) {
  if (!fit || fit.capacity_bytes > 4 * Math.max(figures.peak_live_bytes, fit.peak_reserved_bytes)) return [];
  return [new Line("capacity", "capacity", [0], [fit.capacity_bytes])];
}

async function linesOf(report, store) {
  const recorded = store.driver.length > 0 && !report.placed_by_model ? [new Line("reserved", "recorded", null, store.reserved)] : [];
  const others = report.comparison.filter((each) => each.curve).map(async (each) => {
    const { events, values } = await decodeCurve(each.curve, store);
    return new Line(each.name, each.origin, events, values);
  });
  return [...recorded, ...capacityLine(report), ...(store.away?.lines ?? []), ...(await Promise.all(others))];
}

function showHead(report) {
  document.title = report.title;
  $("title").textContent = report.title;
  const say = (fact) => `${fact.name}: ${fact.value}`;
  $("facts").textContent = report.facts.slice(0, 3).map(say).join(" · ");
  $("more-facts").hidden = report.facts.length <= 3;
  for (const fact of report.facts.slice(3)) $("fact-list").append(make("li", say(fact)));
}

function build(app) {
  for (const definition of PANELS.filter((each) => each.offered(app))) {
    const section = make("section", undefined, definition.half ? "half" : "");
    section.id = definition.id;
    if (definition.title) section.append(make("h2", definition.title));
    $("main").append(section);
    app.shown.push(definition.build(app, section));
  }
}

/** The system's colours until somebody switches. */
function listenForThemes(app) {
  const redraw = () => {
    forgetTheme();
    $("theme").textContent = isDark() ? "Light" : "Dark";
    $("theme").title = isDark() ? "Use light colours" : "Use dark colours";
    app.draw();
  };
  $("theme").addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    redraw();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  redraw();
}

/** The chosen moment in the address: a link that ends in `#event=782` opens there. */
function followAddress(app) {
  const go = () => {
    const [, event] = /^#event=([0-9]+)$/.exec(location.hash) ?? [];
    if (event !== undefined && Number(event) < app.store.n && Number(event) !== app.event) app.select(Number(event));
  };
  let waits;
  // Browsers refuse pages that change their address many times a second, as a drag over the plot would.
  const note = () => {
    clearTimeout(waits);
    waits = setTimeout(() => history.replaceState(null, "", `#event=${app.event}`), 200);
  };
  go();
  app.shown.push({ update: (part) => { if (part === "event") note(); } });
  addEventListener("hashchange", go);
}

async function start() {
  const report = JSON.parse($("data").textContent);
  if (report.schema !== 2) throw new Error(`this page shows reports of schema 2, not ${report.schema}`);
  showHead(report);
  const store = report.events?.count > 0 ? await decode(report.events) : null;
  const app = new App(report, store, store ? await linesOf(report, store) : []);
  $("notice").hidden = true;
  $("main").hidden = false;
  build(app);
  if (store) followAddress(app);
  addEventListener("resize", () => app.draw());
  listenForThemes(app);
  requestAnimationFrame(() => requestAnimationFrame(() => { document.documentElement.dataset.ready = String(Math.round(performance.now())); }));
}

start().catch((error) => {
  $("notice").textContent = `This report cannot be shown: ${error.message}. A browser from 2024 or later is needed.`;
  document.documentElement.dataset.ready = "error";
});
