// Several runs beside each other: on one scale, with what differs between them.
const RUN_ROWS = 12;
const runColor = (run) => PALETTE[run % SHOWN];

/** An axis that reaches to the end of the longest run. */
class CommonAxis extends Axis {
  constructor(store, kind, end) { super(store, kind); this.common = end; }
  get end() { return this.common; }
}

/** Live bytes of all runs, each from its own start; dashed, what it had reserved. */
class RunsChart {
  constructor(parts) {
    Object.assign(this, parts);
    this.drawn = runs.map(({ store, lines }, run) => ({ run, store, peaks: store && new Peaks(store.live), reserved: lines.find((line) => line.origin === "recorded") }))
      .filter(({ store }) => store);
    this.top = Math.max(1, ...this.drawn.map(({ store, peaks, reserved }) => Math.max(store.live[peaks.at(0, store.n)], reserved?.top ?? 0))) * 1.04;
    this.draw = framed(() => this.paint());
    this.across(this.drawn.every(({ store }) => store.duration > 0) ? "time" : "events");
    this.plot.addEventListener("pointermove", (event) => tip(event, this.explain(event)));
    this.plot.addEventListener("pointerleave", (event) => tip(event, ""));
  }
  /** Runs of different speed are compared by events. */
  across(kind) {
    this.kind = kind;
    const end = Math.max(...this.drawn.map(({ store }) => new Axis(store, kind).end));
    for (const each of this.drawn) each.view = new View(new CommonAxis(each.store, kind, end), this.top);
    this.draw();
  }
  explain(event) {
    const { axis } = this.drawn[0].view;
    const place = (within(this.plot, event)[0] / this.plot.clientWidth) * axis.end;
    const at = this.drawn.map(({ run, store, view }) => {
      const last = view.axis.eventAt(place);
      const live = place > new Axis(store, axis.kind).end ? "has ended" : `live ${bytes(last < 0 ? 0 : store.live[last])}`;
      return `${runName(run)}: ${live}`;
    });
    return [axis.kind === "time" ? instant(Math.round(place)) : `event ${whole(place)}`, ...at].join("\n");
  }
  paint() {
    const { context, width, height } = surface(this.plot);
    const { view } = this.drawn[0];
    context.fillStyle = style("--grid");
    const y = (value) => height - (value / view.high) * height;
    for (const tick of paintBytesAxis(this.bytesAxis, view)) context.fillRect(0, Math.round(y(tick)), width, 1);
    paintTimeAxis(this.timeAxis, view);
    for (const each of this.drawn) this.paintRun(context, each, Math.floor(width), y);
  }
  paintRun(context, { run, store, view, peaks, reserved }, width, y) {
    const columns = new Columns(view, Math.max(1, width), peaks);
    const end = Math.min(width, Math.ceil((new Axis(store, view.axis.kind).end / view.axis.end) * width));
    const trace = (value, dash) => {
      context.setLineDash(dash);
      context.beginPath();
      for (let x = 0; x < end; x += 1) {
        if (columns.sample[x] < 0) continue;
        context.lineTo(x, y(value(x)));
        context.lineTo(x + 1, y(value(x)));
      }
      context.stroke();
    };
    context.strokeStyle = runColor(run);
    context.lineWidth = 2;
    trace((x) => store.live[columns.sample[x]], []);
    if (reserved) trace((x) => reserved.most(Math.max(0, columns.first[x]), columns.last[x] + 1), [7, 4]);
    context.setLineDash([]);
  }
}

const runName = (run) => `${run + 1}: ${runs[run].report.title}`;
const signed = (value, say) => `${value < 0 ? "−" : "+"}${say(Math.abs(value))}`;

/** A figure of each run, and of all but the first how far it is from the first. */
function runCells(values, say) {
  return values.map((value, run) => {
    if (value === null || value === undefined) return "–";
    const differs = run > 0 && values[0] !== null && values[0] !== undefined && value !== values[0];
    return differs ? `${say(value)} (${signed(value - values[0], say)})` : say(value);
  });
}

function runFigures() {
  const figures = [["Peak live", "peak_live_bytes", bytes], ["Peak reserved", "peak_reserved_bytes", bytes], ["Allocations", "allocations", whole],
    ["Events", "events", whole], ["Driver calls", "driver_calls", whole], ["Failed requests", "oom", whole], ["Duration", "duration_us", duration]];
  return figures.map(([name, key, say]) => [[name, "text"], ...runCells(runs.map(({ report }) => report.figures[key]), say)]);
}

/** Bytes by name at the peak of a run. */
function bytesAtPeak({ report, store }) {
  const [labels, sums] = [new Labels(report.labels), new Map()];
  if (!store) return sums;
  for (const index of store.liveAt(new Peaks(store.live).at(0, store.n))) {
    const name = labels.path(store.label[index]) || "no name";
    sums.set(name, (sums.get(name) ?? 0) + store.size[index]);
  }
  return sums;
}

/** Names whose bytes at the peak differ most. */
function runNames() {
  const peaks = runs.map(bytesAtPeak);
  const most = (values) => Math.max(...values) - Math.min(...values);
  return [...new Set(peaks.flatMap((sums) => [...sums.keys()]))]
    .map((name) => ({ name, values: peaks.map((sums) => sums.get(name) ?? 0) }))
    .filter(({ values }) => most(values) > 0)
    .sort((a, b) => most(b.values) - most(a.values))
    .map(({ name, values }) => [[name, "text"], ...runCells(values, bytes)]);
}

function runTable(title, rows) {
  const [scroll, table] = [make("div", undefined, "scroll"), make("table")];
  row(table, [[title, "text"], ...runs.map((_, run) => String(run + 1))], "th");
  for (const cells of rows) row(table, cells);
  scroll.append(table);
  return scroll;
}

function runChart() {
  const [frame, stack, parts] = [make("div", undefined, "frame"), make("div", undefined, "stack low"), {}];
  for (const name of ["bytesAxis", "plot", "timeAxis"]) parts[name] = make("canvas", undefined, name);
  parts.plot.setAttribute("role", "img");
  parts.plot.setAttribute("aria-label", "Live bytes of each run over time; dashed, what it had reserved");
  stack.append(parts.plot);
  frame.append(parts.bytesAxis, stack, parts.timeAxis);
  return { frame, parts };
}

panel({
  id: "runs",
  title: "Runs beside each other",
  offered: () => runs.length > 1,
  build(app, body) {
    const choice = tabs("run", runs.map((_, run) => [String(run), runName(run)]), (run) => show(Number(run)));
    [...choice.box.children].forEach((tab, run) => { const swatch = make("i", undefined, "swatch"); swatch.style.background = runColor(run); tab.prepend(swatch); });
    choice.choose(String(shown.run));
    const names = runs.some(({ report }) => report.labels.length) ? runNames() : [];
    const tables = make("div", undefined, "pair");
    tables.append(runTable("", runFigures()));
    if (names.length) tables.append(runTable("Live at each one's peak, what differs most", names.slice(0, RUN_ROWS)));
    if (!runs.some(({ store }) => store)) { body.append(choice.box, tables); return {}; }
    const { frame, parts } = runChart();
    const [chart, bar] = [new RunsChart(parts), make("div", undefined, "bar")];
    const across = chooser("Across", "run-axis", [["time", "time"], ["events", "events"]], (kind) => chart.across(kind));
    across.select.value = chart.kind;
    bar.append(choice.box, across.label, make("span", "Solid: live. Dashed: reserved, as recorded.", "hint"));
    body.append(bar, frame, tables);
    return { draw: chart.draw };
  },
});
