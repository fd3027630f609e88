// Each allocation as a band: as tall as its bytes, as long as its life, older ones below.

/** Bands times columns that one picture may cost. What is smaller is drawn as one grey band on top. */
const BUDGET = 3e6;

class Bands {
  constructor(app) {
    this.app = app;
    // The bands of the picture: allocation, first column, column behind the last.
    this.list = new Uint32Array(app.store.allocations);
    this.from = new Uint16Array(app.store.allocations);
    this.to = new Uint16Array(app.store.allocations);
    this.count = 0;
    this.least = 0;
  }
  /** Finds the allocations that a column draws. Both they and the columns are in order of events, so that one walk suffices. */
  gather(columns) {
    const { start, end } = this.app.store;
    const { sample, width } = columns;
    const newest = sample[width - 1];
    const made = newest < 0 ? 0 : this.app.store.made(newest);
    let [count, cost, from] = [0, 0, 0];
    for (let index = 0; index < made; index += 1) {
      while (sample[from] < start[index]) from += 1;
      if (end[index] <= sample[from]) continue;
      const to = end[index] > newest ? width : columns.firstAt(end[index]);
      this.list[count] = index;
      this.from[count] = from;
      this.to[count] = to;
      count += 1;
      cost += to - from;
    }
    this.count = count;
    this.least = cost > BUDGET ? this.threshold() : 0;
  }
  /** The least power of two such that the allocations of at least this size keep to the budget. */
  threshold() {
    const costs = new Float64Array(64);
    for (let at = 0; at < this.count; at += 1) costs[Math.floor(Math.log2(this.app.store.size[this.list[at]]))] += this.to[at] - this.from[at];
    let [power, cost] = [63, 0];
    while (power > 0 && cost + costs[power] <= BUDGET) cost += costs[power--];
    return 2 ** (power + 1);
  }
  /** Fills `pixels` and returns what is written on the bands, and the outline of the chosen one. */
  paint(pixels, columns, view, height) {
    const { app } = this;
    const scale = height / view.height;
    const rows = new Float64Array(columns.width).fill(view.high * scale);
    const [colors, legible] = [this.colors(), 13 * pixelRatio()];
    const found = { captions: [], outline: null };
    for (let at = 0; at < this.count; at += 1) {
      const index = this.list[at];
      const size = app.store.size[index];
      if (size < this.least) continue;
      const tall = size * scale;
      const shown = app.hits && !app.hits.mark[index] ? colors.faded : colors.full;
      const group = app.groups.group[index] * 3;
      const shade = tall < 2 ? 0 : index & 1;
      if (index === app.allocation) found.outline = { from: this.from[at], tops: rows.slice(this.from[at], this.to[at]), tall };
      if (tall >= legible) this.noteCaption(found.captions, at, rows, tall);
      band(pixels, columns.width, height, rows, this.from[at], this.to[at], tall, shown[group + shade], tall < 3 ? 0 : shown[group + 2]);
    }
    this.paintRest(pixels, columns, rows, scale, height, pixel(style("--rest")));
    return found;
  }
  /** What is too small to be drawn by itself, up to the live bytes. */
  paintRest(pixels, columns, rows, scale, height, color) {
    if (!this.least) return;
    for (let x = 0; x < columns.width; x += 1) {
      const top = (columns.view.high - (this.app.store.live[columns.sample[x]] ?? 0)) * scale;
      band(pixels, columns.width, height, rows, x, x + 1, rows[x] - top, color, 0);
    }
  }
  /** Three pixels for each group: two shades that take turns, and an edge. */
  colors() {
    const back = style("--back");
    const shades = [...PALETTE, style("--rest")].flatMap((color) => [color, mix(color, "#ffffff", 0.16), mix(color, "#000000", 0.3)]);
    return { full: Uint32Array.from(shades, pixel), faded: Uint32Array.from(shades, (color) => pixel(mix(color, back, 0.82))) };
  }
  /** Notes where a band stays at one height for long enough to be written on. */
  noteCaption(captions, at, rows, tall) {
    let [start, best, length] = [this.from[at], 0, 0];
    for (let x = this.from[at]; x <= this.to[at]; x += 1) {
      if (x < this.to[at] && Math.abs(rows[x] - rows[start]) < 0.5) continue;
      if (x - start > length) { best = start; length = x - start; }
      start = x;
    }
    if (length > 40 * pixelRatio()) captions.push({ index: this.list[at], x: best, width: length, y: rows[best] - tall, height: tall });
  }
  /** Bytes at a column that are too small to be drawn one by one. */
  restAt(x, event) {
    if (!this.least) return 0;
    const { size, live } = this.app.store;
    let drawn = 0;
    for (let at = 0; at < this.count; at += 1) {
      if (this.from[at] <= x && this.to[at] > x && size[this.list[at]] >= this.least) drawn += size[this.list[at]];
    }
    return live[event] - drawn;
  }
  /** The allocation at a column and a number of bytes; -1 where none is drawn. */
  hit(x, value) {
    const { size } = this.app.store;
    let sum = 0;
    for (let at = 0; at < this.count; at += 1) {
      if (this.from[at] > x || this.to[at] <= x || size[this.list[at]] < this.least) continue;
      sum += size[this.list[at]];
      if (sum > value) return this.list[at];
    }
    return -1;
  }
}

/** Draws one band over columns `from..to` and moves `rows` up by it. A pixel belongs to the band that covers its middle, so that
 * thin bands show in turn and none of them shifts another. */
function band(pixels, width, height, rows, from, to, tall, color, edge) {
  for (let x = from; x < to; x += 1) {
    const bottom = rows[x];
    const top = bottom - tall;
    rows[x] = top;
    let row = Math.ceil(top - 0.5);
    const end = Math.min(height, Math.ceil(bottom - 0.5));
    if (row < 0) row = 0; else if (edge && row < end) { pixels[row * width + x] = edge; row += 1; }
    const fill = edge && x === from ? edge : color;
    for (let at = row * width + x; row < end; row += 1, at += width) pixels[at] = fill;
  }
}
