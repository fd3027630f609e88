// The greatest of any run of a series in a few dozen steps.

/** For blocks of 32 values, of 32 × 32 values, and so on: where the greatest one is. */
class Peaks {
  constructor(values) {
    this.values = values;
    this.levels = [];
    for (let length = values.length; length > 32; length = Math.ceil(length / 32)) this.levels.push(this.coarser(length));
  }
  coarser(length) {
    const below = this.levels.at(-1);
    const next = new Uint32Array(Math.ceil(length / 32));
    for (let at = 0; at < next.length; at += 1) {
      let best = below ? below[at * 32] : at * 32;
      for (let from = at * 32 + 1, to = Math.min(at * 32 + 32, length); from < to; from += 1) {
        const other = below ? below[from] : from;
        if (this.values[other] > this.values[best]) best = other;
      }
      next[at] = best;
    }
    return next;
  }
  /** The index of the greatest value in `from..to`; `from < to`. */
  at(from, to) {
    let [best, level] = [from, -1];
    const take = (at) => {
      const other = level < 0 ? at : this.levels[level][at];
      if (this.values[other] > this.values[best]) best = other;
    };
    while (from < to) {
      while (from < to && (from % 32 !== 0 || level === this.levels.length - 1)) take(from++);
      while (from < to && to % 32 !== 0) take(--to);
      from /= 32; to /= 32; level += 1;
    }
    return best;
  }
}
