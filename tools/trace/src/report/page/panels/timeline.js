// Live and reserved bytes over time: by group, or allocation by allocation.
class Timeline {
  constructor(app, parts, say) {
    Object.assign(this, { app, plot: parts.plot, over: parts.over, say });
    [this.bytesAxis, this.timeAxis] = [parts["bytes-axis"], parts["time-axis"]];
    const top = Math.max(1, app.store.live[app.peak], ...app.lines.map((line) => line.top)) * 1.04;
    this.view = new View(new Axis(app.store, app.store.duration > 0 ? "time" : "events"), top);
    this.mode = "allocations";
    this.bands = new Bands(app);
    this.overview = new Overview(app, this, parts.overview);
    this.hovered = null;
    const paint = framed(() => this.paint());
    this.draw = () => { paint(); this.overview.draw(); };
    this.drawOver = framed(() => this.paintOver());
    followPointer(this, this.plot);
    followKeys(this, this.plot);
  }
  /** Made when first needed: it takes a walk over all events. */
  get layers() {
    if (this.layersOf?.groups !== this.app.groups) this.layersOf = { groups: this.app.groups, layers: new Layers(this.app) };
    return this.layersOf.layers;
  }
  update(part) {
    if (part === "reveal") this.fitAllocation();
    else if (part === "event") this.keepInView(this.app.event);
    else if (part !== "allocation" || this.outlined !== this.app.allocation) this.draw();
    this.readout();
    this.drawOver();
  }
  setAxis(kind) {
    const [first, last] = [Math.max(0, this.view.axis.eventAt(this.view.from)), this.view.axis.lastBefore(this.view.to)];
    this.view.axis.kind = kind;
    this.view.show(this.view.axis.place(first), last === this.app.store.n - 1 ? this.view.axis.end : this.view.axis.place(last));
    this.draw();
  }
  /** Brings an event into view where it is outside. */
  keepInView(event) {
    const place = this.view.axis.place(event);
    if (place >= this.view.from && place <= this.view.to) return;
    this.view.show(place - this.view.width / 2, place + this.view.width / 2);
    this.draw();
  }
  /** Where keys zoom: at the pointer, else at the chosen moment, else in the middle. */
  focusPlace() {
    const place = this.hovered ? this.hovered.place : this.view.axis.place(this.app.event);
    return place >= this.view.from && place <= this.view.to ? place : (this.view.from + this.view.to) / 2;
  }

  /** What is under the pointer: the column, its event, the bytes, and the allocation or group there. */
  at(event) {
    const [x, y] = within(this.plot, event);
    const { columns, view } = this;
    const column = Math.max(0, Math.min(columns.width - 1, Math.floor((x / this.plot.clientWidth) * columns.width)));
    const value = view.high - (y / this.plot.clientHeight) * view.height;
    const sample = columns.sample[column];
    const found = { place: view.from + (x / this.plot.clientWidth) * view.width, event: Math.max(0, sample), allocation: -1, group: -1, rest: 0 };
    if (sample < 0) return found;
    if (this.mode === "groups") found.group = this.layers.hit(sample, value);
    else found.allocation = this.bands.hit(column, value);
    if (this.mode === "allocations" && found.allocation < 0 && value < this.app.store.live[sample]) found.rest = this.bands.restAt(column, sample);
    return found;
  }
  hover(event) {
    if (!this.columns) return;
    this.hovered = this.at(event);
    tip(event, this.explain(this.hovered));
    this.drawOver();
  }
  leave(event) { this.hovered = null; tip(event, ""); this.drawOver(); }
  explain({ event, allocation, group, rest }) {
    const { app } = this;
    const lines = allocation >= 0 ? app.describe(allocation, event) : [];
    if (group >= 0) lines.push(`${app.groups.name(group)}: ${bytes(this.layers.at(event)[group])}`);
    if (rest > 0) lines.push(`${bytes(rest)} in allocations below ${bytes(this.bands.least)} each; zoom in to see them`);
    lines.push(this.sayMoment(event));
    return lines.join("\n");
  }
  sayMoment(event) {
    const { store, lines } = this.app;
    const others = lines.map((line) => `${line.name} ${bytes(line.at(event))}`);
    return [`${instant(store.time[event])}: live ${bytes(store.live[event])}`, ...others].join(", ");
  }
  click(event) {
    const { event: chosen, allocation } = this.at(event);
    this.app.allocation = allocation;
    this.app.select(chosen);
    this.app.tell("allocation");
  }
  fit(event) {
    const { allocation } = this.at(event);
    if (allocation >= 0) this.app.reveal(allocation); else { this.view.reset(); this.draw(); }
  }
  /** Zooms so that the chosen allocation can be seen: its whole life, and its height where that is too little. */
  fitAllocation() {
    const { store, allocation, event } = this.app;
    if (allocation < 0) return;
    const { axis } = this.view;
    const from = axis.place(store.start[allocation]);
    const to = store.end[allocation] < store.n ? axis.place(store.end[allocation]) : axis.end;
    const room = Math.max((to - from) * 0.25, axis.least / 4);
    this.view.show(from - room, to + room);
    let below = 0;
    for (const index of store.liveAt(event)) if (index < allocation) below += store.size[index];
    const size = store.size[allocation];
    const high = Math.min(this.view.top, size * 24);
    if (size < this.view.top / 40) this.view.showBytes(below + size / 2 - high / 2, below + size / 2 + high / 2);
    else this.view.showBytes(0, this.view.top);
    this.draw();
  }

  paint() {
    const ratio = pixelRatio();
    const { context } = surface(this.plot);
    const { width, height } = this.plot;
    if (!width || !height) return;
    context.setTransform(1, 0, 0, 1, 0, 0);
    const { view } = this;
    this.columns = new Columns(view, width, this.app.livePeaks);
    this.y = (value) => height - ((value - view.low) / view.height) * height;
    if (this.mode === "allocations") this.paintBands(context, width, height, ratio);
    else this.layers.paint(context, this.columns, this.y);
    this.paintGrid(context, width, paintBytesAxis(this.bytesAxis, view));
    paintTimeAxis(this.timeAxis, view);
    this.paintLines(context, ratio);
    Object.assign(this.plot.dataset, { from: view.from, to: view.to, low: view.low, high: view.high });
    this.paintOver();
  }
  paintBands(context, width, height, ratio) {
    const image = context.createImageData(width, height);
    this.bands.gather(this.columns);
    const { captions, outline } = this.bands.paint(new Uint32Array(image.data.buffer), this.columns, this.view, height);
    context.putImageData(image, 0, 0);
    this.outline = outline;
    this.outlined = this.app.allocation;
    context.font = `${12 * ratio}px system-ui, sans-serif`;
    for (const { index, x, width: wide, y, height: tall } of captions) {
      const color = groupColor(this.app.groups.group[index]);
      context.globalAlpha = this.app.hits && !this.app.hits.mark[index] ? 0.3 : 1;
      const visible = Math.min(height, y + tall) - Math.max(0, y);
      const text = this.app.store.label[index] ? this.app.name(index) : bytes(this.app.store.size[index]);
      const middle = Math.max(0, y) + visible / 2 + 4 * ratio;
      if (visible >= 13 * ratio) caption(context, text, x + 5 * ratio, middle, wide / ratio - 10, inkOn(color));
    }
    context.globalAlpha = 1;
  }
  /** Behind everything that is drawn. */
  paintGrid(context, width, ticks) {
    context.globalCompositeOperation = "destination-over";
    context.fillStyle = style("--grid");
    for (const value of ticks) context.fillRect(0, Math.round(this.y(value)), width, 1);
    context.globalCompositeOperation = "source-over";
  }
  paintLines(context, ratio) {
    const { columns, y } = this;
    const { store, lines } = this.app;
    const trace = (value, color, thick, dash) => {
      context.strokeStyle = color;
      context.lineWidth = thick * ratio;
      context.setLineDash(dash.map((length) => length * ratio));
      context.beginPath();
      for (let x = 0; x < columns.width; x += 1) {
        if (columns.last[x] < 0) continue;
        const height = y(value(x));
        context.lineTo(x, height);
        context.lineTo(x + 1, height);
      }
      context.stroke();
      context.setLineDash([]);
    };
    // Faint, so that a spike of one column still shows its colours.
    context.globalAlpha = 0.4;
    trace((x) => store.live[columns.sample[x]], style("--text"), 1, []);
    context.globalAlpha = 1;
    for (const line of lines) {
      const most = (x) => line.most(Math.max(0, columns.first[x]), columns.last[x] + 1);
      trace(most, lineColor(line), 2, LINES[line.origin].dash);
    }
  }
  /** The chosen moment, the chosen band, the pointer and failed requests: on a canvas of their own, because they change often. */
  paintOver() {
    const { context, width, height, ratio } = surface(this.over);
    const { view } = this;
    const bar = (place, color, dash, thick) => {
      const x = ((place - view.from) / view.width) * width;
      if (x < 0 || x > width) return;
      context.strokeStyle = color;
      context.lineWidth = thick;
      context.setLineDash(dash);
      context.beginPath(); context.moveTo(x, 0); context.lineTo(x, height); context.stroke();
      context.setLineDash([]);
    };
    for (const failure of this.app.store.failures.slice(0, 500)) bar(view.axis.place(failure.event), style("--warn"), [4, 3], 1.5);
    if (this.outline && this.mode === "allocations") this.paintOutline(context, ratio);
    bar(view.axis.place(this.app.event), style("--accent"), [], 1.5);
    if (this.hovered) bar(this.hovered.place, style("--soft"), [2, 3], 1);
  }
  paintOutline(context, ratio) {
    const { from, tops, tall } = this.outline;
    context.strokeStyle = style("--text");
    context.lineWidth = 2;
    context.beginPath();
    const point = (x, row) => context.lineTo(x / ratio, row / ratio);
    tops.forEach((row, x) => { point(from + x, row - tall); point(from + x + 1, row - tall); });
    for (let x = tops.length - 1; x >= 0; x -= 1) { point(from + x + 1, tops[x]); point(from + x, tops[x]); }
    context.closePath();
    context.stroke();
  }
  readout() {
    const { app } = this;
    this.say.replaceChildren(make("span", `Event ${whole(app.event)}, ${this.sayMoment(app.event)}`));
    if (app.allocation >= 0) this.sayChosen(app.frames(app.allocation), app.facts(app.allocation, app.event));
  }
  /** A tag and a name stay on one line; the frames of a stack get one each. */
  sayChosen(frames, facts) {
    const isStack = frames.length > 2;
    const name = isStack ? frames.at(-1) : frames.join(" / ") || "no name";
    this.say.append(make("span", `Chosen: ${[`${name}, #${this.app.allocation}`, ...facts].join("; ")}`));
    if (!isStack) return;
    const list = make("ol", undefined, "frames");
    for (const frame of frames) list.append(make("li", frame));
    this.say.append(list);
  }
}

/** Says what the recording does not know, and where what is shown instead comes from. */
function originNote(app) {
  const model = app.report.placed_by_model;
  if (!model) return [];
  const lines = app.lines.map((line) => `${line.name} (${line.origin})`);
  const reserved = lines.length ? ` Reserved lines are computed: ${lines.join(", ")}.` : "";
  const text = "The recording says what was allocated and freed, not what was reserved or where it lay.";
  return [make("p", `${text}${reserved} Blocks and offsets are those of ${model} (model).`, "note")];
}

/** The canvases: bytes to the left, time below, the whole recording under that. */
function timelineFrame() {
  const parts = {};
  for (const id of ["bytes-axis", "plot", "over", "time-axis", "overview"]) {
    parts[id] = make("canvas");
    parts[id].id = id;
  }
  parts.plot.tabIndex = 0;
  parts.plot.setAttribute("role", "img");
  parts.plot.setAttribute("aria-label", `Live and reserved bytes over time. ${TIMELINE_KEYS}`);
  const [frame, stack] = [make("div", undefined, "frame"), make("div", undefined, "stack")];
  stack.append(parts.plot, parts.over);
  frame.append(parts["bytes-axis"], stack, parts["time-axis"], parts.overview);
  return { frame, parts };
}

function timelineBar(app, timeline) {
  const bar = make("div", undefined, "bar");
  const modes = [["allocations", "Allocations"], ["groups", "Categories"]];
  const mode = tabs("mode", modes, (value) => { timeline.mode = value; timeline.draw(); });
  mode.choose(timeline.mode);
  const axis = chooser("Across", "axis", [["time", "time"], ["events", "events"]], (value) => timeline.setAxis(value));
  axis.select.value = timeline.view.axis.kind;
  const peak = button("Peak", "Choose the moment with the most live bytes (p)", () => app.select(app.peak));
  const all = button("Whole recording", "Show everything (0)", () => { timeline.view.reset(); timeline.draw(); });
  bar.append(mode.box, colorChooser(app), axis.label, peak, all);
  return bar;
}

panel({
  id: "timeline",
  title: "Memory over time",
  offered: (app) => app.store !== null,
  build(app, body) {
    const { frame, parts } = timelineFrame();
    const [say, legend, help] = [make("div", undefined, "readout"), new Legend(app), make("details", undefined, "hint")];
    say.id = "readout";
    const timeline = new Timeline(app, parts, say);
    help.append(make("summary", "Keys and mouse"), make("p", TIMELINE_KEYS));
    body.append(timelineBar(app, timeline), legend.box, frame, say, ...originNote(app), help);
    timeline.readout();
    return {
      update: (part) => { timeline.update(part); legend.update(part); },
      draw: () => { timeline.draw(); legend.draw(); },
    };
  },
});
