// What colours stand for: tags, streams, classes of size, or classes of lifetime.
const LIFE_CLASSES = [100, 1e3, 1e4, 1e5, 1e6];

const allSpans = (report) => report.moments.flatMap((moment) => moment.blocks).flatMap((block) => block.spans);

/** Calls `each(label, size, weight)` for all allocations, or for all spans of maps without a recording. Weights are what the
 * timeline shows as area: bytes times lifetime. */
function weighAll(app, each) {
  const { store, report } = app;
  if (!store) for (const span of allSpans(report)) each(span.label, span.size, span.size);
  for (let index = 0; index < (store?.allocations ?? 0); index += 1) {
    each(store.label[index], store.size[index], store.size[index] * (1 + store.lifetime(index)), store.stream[index]);
  }
}

/** Bounds of classes of size, powers of two, so that each class weighs about as much as the others. */
function sizeBounds(app) {
  const weights = new Float64Array(64);
  weighAll(app, (label, size, weight) => { weights[Math.floor(Math.log2(size))] += weight; });
  const sum = (from, to) => weights.subarray(from, to).reduce((all, weight) => all + weight, 0);
  const parts = [[0, 64]];
  while (parts.length < SHOWN) {
    const open = parts.filter(([from, to]) => weights.subarray(from, to).filter((weight) => weight > 0).length > 1);
    if (!open.length) break;
    const heaviest = open.reduce((a, b) => (sum(...b) > sum(...a) ? b : a));
    const [from, to] = heaviest;
    let cut = from + 1;
    while (cut + 1 < to && (sum(from, cut) === 0 || (sum(from, cut) < sum(from, to) / 2 && sum(cut + 1, to) > 0))) cut += 1;
    parts.splice(parts.indexOf(heaviest), 1, [from, cut], [cut, to]);
  }
  return parts.slice(1).map(([from]) => 2 ** from);
}

/** The names of classes between these bounds. */
function classNames(bounds, say) {
  if (!bounds.length) return ["all"];
  return [`below ${say(bounds[0])}`, ...bounds.map((from, at) => (at + 1 < bounds.length ? `${say(from)} – ${say(bounds[at + 1])}` : `${say(from)} and more`))];
}
const shortBytes = (value) => { const [divisor, unit] = byteUnit(value); return `${value / divisor} ${unit}`; };
const shortTime = (us) => (us < 1e3 ? `${us} µs` : us < 1e6 ? `${us / 1e3} ms` : `${us / 1e6} s`);

/** The class of a value: how many bounds it reaches. */
function classOf(bounds, value) {
  let found = 0;
  while (found < bounds.length && value >= bounds[found]) found += 1;
  return found;
}

/**
 * A way to colour: `names` by group, `of(allocation)` and `ofSpan(span)` give the group of an allocation of the recording
 * and of a span of a map. `REST` is whatever has no colour.
 */
const GROUPINGS = {
  tag: {
    title: "tag",
    offered: (app) => app.labels.any,
    build(app) {
      const own = new Float64Array(app.labels.text.length);
      const { store } = app;
      weighAll(app, (label, size, weight) => { own[label] += weight; });
      const shown = app.labels.heaviest(own);
      const groups = new Uint8Array(own.length).fill(REST);
      shown.forEach((label, group) => { groups[label] = group; });
      // A parent comes before its children, so that a group reaches everything below it.
      for (let label = 1; label < groups.length; label += 1) if (groups[label] === REST) groups[label] = groups[app.labels.parent[label]];
      return { names: shown.map((label) => app.labels.short(label)), of: (index) => groups[store.label[index]], ofSpan: (span) => groups[span.label] };
    },
  },
  size: {
    title: "size",
    offered: () => true,
    build(app) {
      const bounds = sizeBounds(app);
      return { names: classNames(bounds, shortBytes), of: (index) => classOf(bounds, app.store.size[index]), ofSpan: (span) => classOf(bounds, span.size) };
    },
  },
  stream: {
    title: "stream",
    offered: (app) => app.store !== null,
    build(app) {
      const { store } = app;
      const sums = new Map();
      weighAll(app, (label, size, weight, stream) => { sums.set(stream, (sums.get(stream) ?? 0) + weight); });
      const shown = [...sums.keys()].sort((a, b) => sums.get(b) - sums.get(a)).slice(0, SHOWN).sort((a, b) => a - b);
      const groups = new Map(shown.map((stream, group) => [stream, group]));
      const of = (index) => groups.get(store.stream[index]) ?? REST;
      return { names: shown.map((stream) => `stream ${stream}`), of, ofSpan: (span) => (span.allocation === undefined ? REST : of(span.allocation)) };
    },
  },
  lifetime: {
    title: "lifetime",
    offered: (app) => app.store !== null && app.store.duration > 0,
    build({ store }) {
      const of = (index) => (store.end[index] === NEVER ? LIFE_CLASSES.length + 1 : classOf(LIFE_CLASSES, store.lifetime(index)));
      return { names: [...classNames(LIFE_CLASSES, shortTime), "until the end"], of, ofSpan: (span) => (span.allocation === undefined ? REST : of(span.allocation)) };
    },
  },
};

/** The groups of a report, by one of the groupings. `group` has that of each allocation. */
class Groups {
  constructor(by, app) {
    const { names, of, ofSpan } = GROUPINGS[by].build(app);
    Object.assign(this, { by, names, ofSpan });
    this.used = new Uint8Array(SHOWN + 1);
    const { store } = app;
    this.group = new Uint8Array(store?.allocations ?? 0);
    for (let index = 0; index < this.group.length; index += 1) { this.group[index] = of(index); this.used[this.group[index]] = 1; }
    if (!store) for (const span of allSpans(app.report)) this.used[ofSpan(span)] = 1;
  }
  name(group) { return group < this.names.length ? this.names[group] : this.by === "tag" ? "other or no tag" : `other ${this.by}s`; }
  /** The groups that something is in. */
  get shown() { return [...this.used.keys()].filter((group) => this.used[group]); }
}
