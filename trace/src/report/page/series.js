// Levels of detail, and the groups that colours stand for.

/** Least and greatest of any run of a series in a few dozen steps: blocks of 32, of 32 × 32, and so on. */
class Pyramid {
  constructor(values) {
    this.levels = [{ low: values, high: values }];
    while (this.levels.at(-1).low.length > 32) this.levels.push(Pyramid.coarser(this.levels.at(-1)));
  }
  static coarser({ low, high }) {
    const length = Math.ceil(low.length / 32);
    const next = { low: new Float64Array(length), high: new Float64Array(length) };
    for (let at = 0; at < length; at += 1) {
      let [least, greatest] = [Infinity, -Infinity];
      for (let from = at * 32, to = Math.min(from + 32, low.length); from < to; from += 1) {
        if (low[from] < least) least = low[from];
        if (high[from] > greatest) greatest = high[from];
      }
      next.low[at] = least;
      next.high[at] = greatest;
    }
    return next;
  }
  /** Least and greatest of `from..to`; `from < to`. */
  range(from, to) {
    let [least, greatest, level] = [Infinity, -Infinity, 0];
    const take = (at) => {
      const { low, high } = this.levels[level];
      if (low[at] < least) least = low[at];
      if (high[at] > greatest) greatest = high[at];
    };
    while (from < to) {
      while (from < to && (from % 32 !== 0 || level === this.levels.length - 1)) take(from++);
      while (from < to && to % 32 !== 0) take(--to);
      from /= 32; to /= 32; level += 1;
    }
    return [least, greatest];
  }
}

/** Labels as a tree. Recordings without labels get one level: classes of size. */
class Tree {
  constructor(labels, store) {
    this.bySize = labels.length === 0;
    this.text = [""]; this.parent = [0];
    if (this.bySize) this.addSizes(store);
    else for (const label of labels) { this.text.push(label.text); this.parent.push(label.parent); }
    this.groups = new Int32Array(this.text.length).fill(-1);
  }
  addSizes(store) {
    for (let power = 0; power <= 64; power += 1) {
      this.text.push(power === 0 ? "1 B" : `${bytes(2 ** (power - 1))} – ${bytes(2 ** power)}`);
      this.parent.push(0);
    }
    if (!store) return;
    for (let index = 0; index < store.size.length; index += 1) store.label[index] = this.sizeLabel(store.size[index]);
  }
  sizeLabel(size) { return 1 + Math.min(64, Math.ceil(Math.log2(Math.max(size, 1)))); }
  /** Sums with everything below, and the children that have any, heaviest first. */
  sums(own) {
    const sum = Float64Array.from(own);
    for (let label = sum.length - 1; label > 0; label -= 1) sum[this.parent[label]] += sum[label];
    const children = new Map();
    for (let label = 1; label < sum.length; label += 1) {
      if (sum[label] <= 0) continue;
      const parent = this.parent[label];
      if (!children.has(parent)) children.set(parent, []);
      children.get(parent).push(label);
    }
    for (const list of children.values()) list.sort((a, b) => sum[b] - sum[a]);
    return { sum, children };
  }
  /** Chooses the groups that get a colour: from the top down, the heaviest is split as long as eight colours still
   * cover most of the whole. */
  choose(own) {
    const { sum, children } = this.sums(own);
    const heaviestFirst = (labels) => [...labels].sort((a, b) => sum[b] - sum[a]);
    let groups = children.get(0) ?? [];
    const whole = new Set();
    for (let turn = 0; turn < 256 && groups.length < 8; turn += 1) {
      const open = groups.filter((label) => children.has(label) && !whole.has(label) && own[label] < 0.1 * sum[label]);
      if (!open.length) break;
      const [heaviest] = heaviestFirst(open);
      const split = groups.filter((label) => label !== heaviest).concat(children.get(heaviest));
      const covered = heaviestFirst(split).slice(0, 8).reduce((all, label) => all + sum[label], 0);
      if (covered < 0.75 * sum[0]) whole.add(heaviest); else groups = split;
    }
    groups = heaviestFirst(groups);
    this.shown = groups.slice(0, 8);
    this.shown.forEach((label, index) => { this.groups[label] = index; });
    // A parent comes before its children, so that a group reaches everything below it.
    for (let label = 1; label < this.groups.length; label += 1) {
      if (this.groups[label] < 0) this.groups[label] = this.groups[this.parent[label]];
    }
    this.rest = own.some((weight, label) => weight > 0 && this.groups[label] < 0);
  }
  /** The colour group of a label, -1 for none of the shown ones. */
  group(label) { return label < this.groups.length ? this.groups[label] : -1; }
  path(label) {
    const parts = [];
    for (let at = label; at; at = this.parent[at]) parts.unshift(this.text[at]);
    return parts.join(" / ");
  }
  /** The end of a path, where it is told apart. */
  short(label) {
    const parent = this.parent[label];
    if (!parent) return this.text[label];
    return `${this.parent[parent] ? "… / " : ""}${this.text[parent]} / ${this.text[label]}`;
  }
  name(span) {
    if (this.bySize) return "";
    return span.label ? this.text[span.label] : "";
  }
}

/** Live bytes by group: exact sums every 64 events, and the way between two of them. */
class Layers {
  constructor(store, tree) {
    this.store = store; this.tree = tree;
    this.width = tree.shown.length + 1;
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
    const kind = this.store.kinds[event];
    if (kind > 1) return;
    const index = this.store.ref[event];
    const group = this.tree.group(this.store.label[index]);
    sums[group < 0 ? this.width - 1 : group] += kind === 0 ? this.store.size[index] : -this.store.size[index];
  }
  /** Puts the sums after `event` into `sums`. */
  at(event, sums) {
    const row = Math.floor((event + 1) / 64);
    sums.set(this.kept.subarray(row * this.width, (row + 1) * this.width));
    for (let at = row * 64; at <= event; at += 1) this.step(sums, at);
  }
}
