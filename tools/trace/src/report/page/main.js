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
  $("fact-list").replaceChildren();
  for (const fact of report.facts.slice(3)) $("fact-list").append(make("li", say(fact)));
}

/** The runs of this page: those that it was written with, and those that were opened on it. */
const runs = [];
/** Which one the panels show, and what ends when they show another. */
let shown = { run: 0, app: null, leave: new AbortController() };

function build(app) {
  for (const definition of PANELS.filter((each) => each.offered(app))) {
    const section = make("section", undefined, definition.half ? "half" : "");
    section.id = definition.id;
    if (definition.title) section.append(make("h2", definition.title));
    $("main").append(section);
    app.shown.push(definition.build(app, section));
  }
}

/** Shows a run in all panels. */
function show(run) {
  shown.leave.abort();
  const { report, store, lines } = runs[run];
  const leave = new AbortController();
  const app = new App(report, store, lines, leave.signal);
  shown = { run, app, leave };
  showHead(report);
  $("main").replaceChildren();
  $("notice").hidden = true;
  $("main").hidden = false;
  build(app);
  if (store) followAddress(app);
  app.draw();
}

/** The system's colours until somebody switches. */
function listenForThemes() {
  const redraw = () => {
    forgetTheme();
    $("theme").textContent = isDark() ? "Light" : "Dark";
    $("theme").title = isDark() ? "Use light colours" : "Use dark colours";
    shown.app.draw();
  };
  $("theme").addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    redraw();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  redraw();
}

/** The run and the event that the address names, or nothing. */
function addressed() {
  const [, run, event] = /^#(?:run=([0-9]+)&)?event=([0-9]+)$/.exec(location.hash) ?? [];
  return event === undefined ? null : { run: Number(run ?? 1) - 1, event: Number(event) };
}

/** The chosen moment in the address: a link that ends in `#event=782`, or `#run=2&event=782`, opens there. */
function followAddress(app) {
  const go = () => {
    const place = addressed();
    if (place?.run === shown.run && place.event < app.store.n && place.event !== app.event) app.select(place.event);
    else if (place && place.run !== shown.run && place.run < runs.length) show(place.run);
  };
  let waits;
  // Browsers refuse pages that change their address many times a second, as a drag over the plot would.
  const note = () => {
    clearTimeout(waits);
    const run = shown.run ? `run=${shown.run + 1}&` : "";
    waits = setTimeout(() => { if (!app.ends.aborted) history.replaceState(null, "", `#${run}event=${app.event}`); }, 200);
  };
  if (addressed()?.run === shown.run) go();
  app.shown.push({ update: (part) => { if (part === "event") note(); } });
  addEventListener("hashchange", go, { signal: app.ends });
}

/** Reads a report's events and lines. */
async function load(report) {
  if (report.schema !== 2) throw new Error(`this page shows reports of schema 2, not ${report.schema}`);
  const store = report.events?.count > 0 ? await decode(report.events) : null;
  return { report, store, lines: store ? await linesOf(report, store) : [] };
}

/** Bytes of a file that is opened here at most: browsers hold no longer arrays everywhere. */
const LARGEST_FILE = 2 ** 30;

/** Reads a snapshot of PyTorch, or a report in JSON; either may be gzip. */
async function read(file) {
  const [first, second] = new Uint8Array(await file.slice(0, 2).arrayBuffer());
  const plain = first === 0x1f && second === 0x8b ? file.stream().pipeThrough(new DecompressionStream("gzip")) : file.stream();
  const bytes = new Uint8Array(await new Response(plain).arrayBuffer());
  if (String.fromCharCode(bytes[0]) === "{") return load(JSON.parse(new TextDecoder().decode(bytes)));
  if (bytes[0] !== 0x80) throw new Error("it is neither a pickled memory snapshot of PyTorch nor a report in JSON; `omniheap report` reads other traces");
  const { report, store } = readSnapshot(bytes, file.name);
  return { report, store, lines: await linesOf({ ...report, comparison: [] }, store) };
}

/** Opens a file beside what is shown; one that cannot be shown changes nothing. */
async function open(file) {
  const [before, known] = [shown.run, runs.length];
  try {
    if (file.size > LARGEST_FILE) throw new Error("it has more than 1 GiB; `omniheap report` reads it");
    runs.push(await read(file));
    show(runs.length - 1);
  } catch (error) {
    if (runs.length > known) { runs.pop(); show(before); }
    $("notice").textContent = `${file.name} cannot be opened: ${error.message}.`;
    $("notice").hidden = false;
  }
}

/** Files that are dropped onto the page, or chosen, are opened. Nothing is sent anywhere. */
function listenForFiles() {
  const field = $("file");
  $("open").addEventListener("click", () => field.click());
  field.addEventListener("change", () => { if (field.files.length) open(field.files[0]); field.value = ""; });
  const offers = (event) => event.dataTransfer?.types.includes("Files");
  addEventListener("dragover", (event) => {
    if (!offers(event)) return;
    event.preventDefault();
    document.documentElement.classList.add("drop");
  });
  const leave = () => document.documentElement.classList.remove("drop");
  addEventListener("dragleave", (event) => { if (!event.relatedTarget) leave(); });
  addEventListener("drop", async (event) => {
    leave();
    if (!offers(event)) return;
    event.preventDefault();
    for (const file of [...event.dataTransfer.files]) await open(file);
  });
}

async function start() {
  const reports = [JSON.parse($("data").textContent)].flat();
  runs.push(...await Promise.all(reports.map(load)));
  show(Math.min(addressed()?.run ?? 0, runs.length - 1));
  addEventListener("resize", () => shown.app.draw());
  listenForThemes();
  listenForFiles();
  $("open").hidden = false;
  requestAnimationFrame(() => requestAnimationFrame(() => { document.documentElement.dataset.ready = String(Math.round(performance.now())); }));
}

start().catch((error) => {
  $("notice").textContent = `This report cannot be shown: ${error.message}. A browser from 2024 or later is needed.`;
  document.documentElement.dataset.ready = "error";
});
