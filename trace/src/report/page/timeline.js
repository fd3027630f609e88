// Live bytes by group, reserved bytes and their unused share, over time or over events.
/** Text on a patch of the background, readable over any colour. */
function tag(context, text, x, y) {
  context.fillStyle = style("--back");
  context.globalAlpha = 0.75;
  context.fillRect(x - 2, y - 11, context.measureText(text).width + 4, 14);
  context.globalAlpha = 1;
  context.fillStyle = style("--soft");
  context.fillText(text, x, y);
}

class Timeline {
  constructor(store, tree, choose) {
    this.store = store; this.tree = tree; this.choose = choose;
    this.canvas = $("timeline");
    this.live = new Pyramid(store.live);
    this.reserved = new Pyramid(store.reserved);
    this.layers = new Layers(store, tree);
    this.axis = store.time[store.n - 1] > 0 ? "time" : "events";
    $("timeline-axis").value = this.axis;
    this.cursor = store.n - 1;
    this.hover = -1;
    this.draw = framed(() => this.paint());
    this.reset();
    this.listen();
  }
  get whole() { return this.axis === "time" ? this.store.time[this.store.n - 1] + 1 : this.store.n; }
  reset() { this.from = 0; this.to = this.whole; this.draw(); }
  /** The last event at or before a place on the axis; -1 before the first. */
  eventAt(place) {
    if (this.axis === "events") return Math.min(this.store.n, Math.ceil(place)) - 1;
    return firstIndex(this.store.n, (event) => this.store.time[event] > place) - 1;
  }
  place(event) { return this.axis === "time" ? this.store.time[event] : event; }

  listen() {
    const at = (event) => this.from + ((event.clientX - this.canvas.getBoundingClientRect().left) / this.canvas.clientWidth) * (this.to - this.from);
    this.canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      const [place, factor] = [at(event), Math.exp(event.deltaY * 0.0015)];
      this.show(place - (place - this.from) * factor, place + (this.to - place) * factor);
    }, { passive: false });
    dragging(this.canvas, (dx) => {
      const by = (-dx / this.canvas.clientWidth) * (this.to - this.from);
      if (this.from + by >= 0 && this.to + by <= this.whole) this.show(this.from + by, this.to + by);
    }, (event) => this.select(this.eventAt(at(event))));
    this.canvas.addEventListener("pointermove", (event) => {
      this.hover = Math.max(0, this.eventAt(at(event)));
      this.readout(this.hover);
      this.draw();
    });
    this.canvas.addEventListener("pointerleave", () => { this.hover = -1; this.readout(this.cursor); this.draw(); });
    this.canvas.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (step) { event.preventDefault(); this.select(this.cursor + step); }
    });
    $("timeline-axis").addEventListener("change", (event) => { this.axis = event.target.value; this.reset(); });
    $("timeline-reset").addEventListener("click", () => this.reset());
  }
  show(from, to) {
    const least = this.axis === "time" ? 20 : 10;
    if (to - from < least) { const middle = (from + to) / 2; from = middle - least / 2; to = from + least; }
    this.from = Math.max(0, from);
    this.to = Math.min(this.whole, Math.max(to, this.from + least));
    this.draw();
  }
  select(event) {
    this.cursor = Math.max(0, Math.min(this.store.n - 1, event));
    this.readout(this.cursor);
    this.draw();
    this.choose(this.cursor);
  }
  readout(event) {
    const { live, reserved, time } = this.store;
    const unused = reserved[event] > 0 ? `, ${percent(Math.max(0, 1 - live[event] / reserved[event]))} of it unused` : "";
    const held = reserved[event] > 0 ? `, reserved ${bytes(reserved[event])}${unused}` : "";
    $("timeline-readout").textContent = `Event ${whole(event)} at ${duration(time[event])}: live ${bytes(live[event])}${held}`;
  }

  /** For each pixel column: its events, and the greatest of each series in it. */
  columns(width) {
    const columns = [];
    let before = this.eventAt(this.from);
    for (let x = 0; x < width; x += 1) {
      const last = this.eventAt(this.from + ((x + 1) / width) * (this.to - this.from));
      const [first, to] = [Math.max(0, Math.min(before, last)), Math.max(last, 0) + 1];
      columns.push({ first, last: Math.max(last, 0), live: this.live.range(first, to), reserved: this.reserved.range(first, to), empty: last < 0 });
      before = last;
    }
    return columns;
  }
  paint() {
    if (this.store.n === 0) return;
    const { context, width, height } = surface(this.canvas);
    const columns = this.columns(Math.max(1, Math.floor(width)));
    const top = Math.max(1, ...columns.map((column) => Math.max(column.live[1], column.reserved[1]))) * 1.06;
    const y = (value) => height - 18 - (value / top) * (height - 24);
    this.paintLayers(context, columns, y);
    this.grid(context, width, height, top, y);
    this.line(context, columns, (column) => y(column.live[1]), style("--text"), 1);
    if (this.store.blockSize.length) this.line(context, columns, (column) => y(column.reserved[1]), style("--reserved"), 2);
    this.marks(context, width, height);
    this.paintUnused(columns);
  }
  paintLayers(context, columns, y) {
    const { width } = this.layers;
    const sums = new Float64Array(width);
    const tops = new Float64Array(width * columns.length);
    columns.forEach((column, x) => {
      if (column.empty) return;
      this.layers.at(column.last, sums);
      let sum = 0;
      for (let layer = 0; layer < width; layer += 1) { sum += sums[layer]; tops[x * width + layer] = sum; }
    });
    for (let layer = width - 1; layer >= 0; layer -= 1) {
      context.fillStyle = colorOf(layer === width - 1 ? -1 : layer);
      context.beginPath();
      context.moveTo(0, y(0));
      for (let x = 0; x < columns.length; x += 1) {
        const top = y(tops[x * width + layer]);
        context.lineTo(x, top);
        context.lineTo(x + 1, top);
      }
      context.lineTo(columns.length, y(0));
      context.fill();
    }
  }
  line(context, columns, y, color, thick) {
    context.strokeStyle = color;
    context.lineWidth = thick;
    context.beginPath();
    columns.forEach((column, x) => { if (!column.empty) { context.lineTo(x, y(column)); context.lineTo(x + 1, y(column)); } });
    context.stroke();
  }
  grid(context, width, height, top, y) {
    context.strokeStyle = style("--grid");
    context.fillStyle = style("--soft");
    context.lineWidth = 1;
    const rise = niceStep(top, 5, 2);
    for (let value = rise; value < top; value += rise) {
      context.beginPath(); context.moveTo(0, y(value)); context.lineTo(width, y(value)); context.stroke();
      tag(context, bytes(value), 4, y(value) - 3);
    }
    const step = niceStep(this.to - this.from, 8);
    for (let at = Math.ceil(this.from / step) * step; at < this.to; at += step) {
      const x = ((at - this.from) / (this.to - this.from)) * width;
      context.fillText(this.axis === "time" ? duration(at) : whole(at), Math.min(x + 3, width - 60), height - 4);
      context.beginPath(); context.moveTo(x, height - 18); context.lineTo(x, height - 12); context.stroke();
    }
  }
  marks(context, width, height) {
    const bar = (event, color, dash) => {
      const x = ((this.place(event) - this.from) / (this.to - this.from)) * width;
      if (x < 0 || x > width) return;
      context.strokeStyle = color; context.lineWidth = 1.5; context.setLineDash(dash);
      context.beginPath(); context.moveTo(x, 0); context.lineTo(x, height - 18); context.stroke();
      context.setLineDash([]);
    };
    for (const failure of this.store.failures.slice(0, 500)) bar(failure.event, style("--warn"), [4, 3]);
    bar(this.cursor, style("--accent"), []);
    if (this.hover >= 0) bar(this.hover, style("--soft"), [2, 3]);
  }
  paintUnused(columns) {
    if (!this.store.blockSize.length) { $("unused").hidden = true; return; }
    const { context, height } = surface($("unused"));
    context.fillStyle = style("--reserved");
    columns.forEach((column, x) => {
      const reserved = this.store.reserved[column.last];
      const share = reserved > 0 ? Math.max(0, 1 - this.store.live[column.last] / reserved) : 0;
      context.globalAlpha = 0.55;
      context.fillRect(x, height * (1 - share), 1, height * share);
    });
    context.globalAlpha = 1;
    context.fillStyle = style("--text");
    context.fillText("unused share of what is reserved (full height is 100 %)", 4, 13);
  }
}
