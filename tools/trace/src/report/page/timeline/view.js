// Which part of the recording the timeline shows.

/** Time or events along the bottom. An event's state holds from its place to that of the next event. */
class Axis {
  constructor(store, kind) { Object.assign(this, { store, kind }); }
  get end() { return this.kind === "time" ? this.store.duration : this.store.n; }
  place(event) { return this.kind === "time" ? this.store.time[event] : event; }
  /** The event whose state holds at a place; -1 before the first. */
  eventAt(place) {
    if (this.kind === "events") return Math.min(this.store.n - 1, Math.floor(place));
    return firstIndex(this.store.n, (event) => this.store.time[event] > place) - 1;
  }
  /** The last event before a place; of the end, the last event. */
  lastBefore(place) {
    if (place >= this.end) return this.store.n - 1;
    if (this.kind === "events") return Math.ceil(place) - 1;
    return firstIndex(this.store.n, (event) => this.store.time[event] >= place) - 1;
  }
  tick(place, step) { return this.kind === "time" ? timeTick(place, step, this.end) : whole(place); }
  /** The closest that can be looked at. */
  get least() { return Math.min(this.end, this.kind === "time" ? 20 : 10); }
}

/** A window on the whole: `from..to` along the axis, `low..high` in bytes. */
class View {
  constructor(axis, top) { Object.assign(this, { axis, top }); this.reset(); }
  reset() { Object.assign(this, { from: 0, to: this.axis.end, low: 0, high: this.top }); }
  get width() { return this.to - this.from; }
  get height() { return this.high - this.low; }
  get isWhole() { return this.width >= this.axis.end && this.height >= this.top; }
  show(from, to) { [this.from, this.to] = clamp(from, to, this.axis.end, this.axis.least); }
  showBytes(low, high) { [this.low, this.high] = clamp(low, high, this.top, Math.min(this.top, 4096)); }
  zoom(place, factor) { this.show(place - (place - this.from) * factor, place + (this.to - place) * factor); }
  zoomBytes(value, factor) { this.showBytes(value - (value - this.low) * factor, value + (this.high - value) * factor); }
  pan(by) { this.show(this.from + by, this.to + by); }
  panBytes(by) { this.showBytes(this.low + by, this.high + by); }
}

/** A range of at least `least` inside `0..end`, moved rather than cut where it reaches over. */
function clamp(from, to, end, least) {
  const wide = Math.min(end, Math.max(to - from, least));
  const middle = (from + to) / 2;
  const start = Math.max(0, Math.min(end - wide, to - from < least ? middle - wide / 2 : from));
  return [start, start + wide];
}

/** The events of each pixel column, and the one that is drawn there: the one with the most live bytes, so that no peak
 * is missed at any zoom. -1 before the first event. */
class Columns {
  constructor(view, width, peaks) {
    Object.assign(this, { view, width });
    this.first = new Int32Array(width);
    this.last = new Int32Array(width);
    this.sample = new Int32Array(width);
    for (let x = 0; x < width; x += 1) {
      const [from, to] = [view.from + (x / width) * view.width, view.from + ((x + 1) / width) * view.width];
      this.first[x] = view.axis.eventAt(from);
      this.last[x] = Math.max(this.first[x], view.axis.lastBefore(to));
      this.sample[x] = this.last[x] < 0 ? -1 : peaks.at(Math.max(0, this.first[x]), this.last[x] + 1);
    }
  }
  /** The first column that draws this event or a later one; `width` when none does. */
  firstAt(event) {
    const { view, width, sample } = this;
    if (event >= view.axis.store.n) return width;
    let x = Math.max(0, Math.min(width - 1, Math.floor(((view.axis.place(event) - view.from) / view.width) * width)));
    while (x > 0 && sample[x - 1] >= event) x -= 1;
    while (x < width && sample[x] < event) x += 1;
    return x;
  }
}
