// Live bytes by group, stacked.

/** Exact sums every 64 events, and the way between two of them. */
class Layers {
  constructor(app) {
    this.app = app;
    this.width = SHOWN + 1;
    const { store } = app;
    const rows = Math.ceil(store.n / 64) + 1;
    this.kept = new Float64Array(rows * this.width);
    const sums = new Float64Array(this.width);
    for (let event = 0; event < store.n; event += 1) {
      if (event % 64 === 0) this.kept.set(sums, (event / 64) * this.width);
      this.step(sums, event);
    }
    this.kept.set(sums, (rows - 1) * this.width);
  }
  step(sums, event) {
    const { store, groups } = this.app;
    const kind = store.kinds[event];
    if (kind > 1) return;
    const index = store.ref[event];
    sums[groups.group[index]] += kind === 0 ? store.size[index] : -store.size[index];
  }
  /** Bytes by group after an event. */
  at(event) {
    const row = Math.floor((event + 1) / 64);
    const sums = this.kept.slice(row * this.width, (row + 1) * this.width);
    for (let at = row * 64; at <= event; at += 1) this.step(sums, at);
    return sums;
  }
  paint(context, columns, y) {
    const tops = new Float64Array(this.width * columns.width);
    for (let x = 0; x < columns.width; x += 1) {
      if (columns.sample[x] < 0) continue;
      let sum = 0;
      this.at(columns.sample[x]).forEach((amount, group) => { sum += amount; tops[x * this.width + group] = sum; });
    }
    for (let group = this.width - 1; group >= 0; group -= 1) {
      if (!this.app.groups.used[group]) continue;
      context.fillStyle = groupColor(group);
      context.beginPath();
      context.moveTo(0, y(0));
      for (let x = 0; x < columns.width; x += 1) {
        const top = y(tops[x * this.width + group]);
        context.lineTo(x, top);
        context.lineTo(x + 1, top);
      }
      context.lineTo(columns.width, y(0));
      context.fill();
    }
  }
  /** The group at a column and a number of bytes; -1 above all of them. */
  hit(event, value) {
    let sum = 0;
    return this.at(event).findIndex((amount) => { sum += amount; return sum > value; });
  }
}
