// A memory snapshot of PyTorch as a report: the same reading as that of `omniheap report`.

/** Numbers in the order in which they are put and read. */
class Column {
  constructor() { Object.assign(this, { values: [], at: 0 }); }
  put(value) { this.values.push(value); }
  next() { return this.values[this.at++]; }
}

/** Segments, as disjoint ranges of addresses. Those that touch stay apart: each is a block of its own. */
class Segments {
  constructor(history) { Object.assign(this, { history, held: [] }); }
  /** The last one that starts below an address. */
  below(address) { return firstIndex(this.held.length, (at) => this.held[at].start >= address) - 1; }
  add(start, size) {
    if (!(start >= 0 && size > 0)) throw new Error("the snapshot has a segment without a place or without bytes");
    this.cut(start, start + size);
    this.held.splice(this.below(start) + 1, 0, { start, end: start + size, block: this.history?.taken(size) });
  }
  /** Takes `start..end` away; what is left of a segment at either end is a new one. */
  cut(start, end) {
    for (;;) {
      const at = this.below(end);
      const found = this.held[at];
      if (!found || found.end <= start) return;
      this.history?.given(found.block);
      const left = [[found.start, start], [end, found.end]].filter(([from, to]) => from < to);
      this.held.splice(at, 1, ...left.map(([from, to]) => ({ start: from, end: to, block: this.history?.taken(to - from) })));
      if (found.start <= start) return;
    }
  }
  holding(address, size) {
    const found = this.held[this.below(address + 1)];
    return found && address + size <= found.end ? found : null;
  }
}

const SNAPSHOT_ACTIONS = { segment_alloc: "map", segment_map: "map", segment_free: "unmap", segment_unmap: "unmap", free: "free_completed" };

/** One event with its numbers checked. */
function snapshotEntry(raw) {
  const number = (value) => (value === undefined || value === null ? 0 : Number.isFinite(value) && value >= 0 ? value : NaN);
  const entry = { action: SNAPSHOT_ACTIONS[raw.action] ?? raw.action, address: number(raw.addr), size: number(raw.size), time: number(raw.time_us), stream: raw.stream ?? 0, raw };
  if (typeof raw.action !== "string" || Number.isNaN(entry.address + entry.size + entry.time)) throw new Error("the snapshot has an event that is none");
  return entry;
}

/** Segments and allocations as they were before the first event: those at the end, with every event taken back. */
function snapshotStart(segments, entries) {
  const [held, live] = [new Segments(null), new Map()];
  for (const segment of segments) {
    let at = segment.address;
    held.add(at, segment.total_size);
    for (const block of segment.blocks) {
      if (block.state !== "inactive") live.set(at, { size: block.requested_size || block.size, stream: segment.stream ?? 0, raw: block });
      at += block.size;
    }
  }
  for (const { action, address, size, stream } of [...entries].reverse()) {
    if (action === "map") held.cut(address, address + size);
    else if (action === "unmap") held.add(address, size);
    else if (action === "alloc") live.delete(address);
    else if (action === "free_completed") live.set(address, { size, stream, raw: null });
  }
  return { segments: held.held, live: [...live].sort(([a], [b]) => a - b) };
}

/** The events of one device, packed as those of a report. */
class History {
  constructor() {
    Object.assign(this, { kinds: [], now: 0, last: 0, made: 0, blocks: 0, requests: 0, labels: [], known: new Map(), stacks: new Map(), streams: new Map(), live: new Map() });
    this.columns = ["steps", "sizes", "labels", "streams", "backs", "blocks", "offsets"].map(() => new Column());
    [this.steps, this.sizes, this.names, this.on, this.backs, this.places, this.offsets] = this.columns;
    this.segments = new Segments(this);
  }
  emit(kind) {
    this.kinds.push(kind);
    this.steps.put(this.now - this.last);
    this.last = this.now;
  }
  /** A block of so many bytes was taken; returns its number. */
  taken(size) { this.sizes.put(size); this.places.put(0); this.emit(2); return this.blocks++; }
  given(block) { this.places.put(block); this.emit(3); }
  stream(raw) {
    if (!this.streams.has(raw)) this.streams.set(raw, this.streams.size);
    return this.streams.get(raw);
  }
  begin({ segments, live }) {
    for (const { start, end } of segments) this.segments.add(start, end - start);
    for (const [address, { size, stream, raw }] of live) this.allocate(address, size, stream, raw);
  }
  event(entry, next, began) {
    this.now = Math.max(this.now, entry.time - began);
    const { action, address, size, stream } = entry;
    if (action === "map") this.segments.add(address, size);
    else if (action === "unmap") this.segments.cut(address, address + size);
    else if (action === "alloc") this.allocate(address, size, stream, entry.raw);
    else if (action === "oom") { this.requests += 1; this.sizes.put(size); this.on.put(this.stream(stream)); this.emit(4); }
    else if (action === "free_requested" || action === "free_completed") this.free(entry, next, began);
  }
  allocate(address, size, stream, raw) {
    const on = this.stream(stream);
    if (!size) return;
    // Its free fell into a hole of the history.
    if (this.live.has(address)) this.completed(address);
    this.live.set(address, { index: this.made++, asked: false });
    this.requests += 1;
    this.sizes.put(size);
    this.names.put(raw ? this.stack(raw.frames) : 0);
    this.on.put(on);
    const place = this.segments.holding(address, size);
    this.places.put(place ? place.block + 1 : 0);
    if (place) this.offsets.put(address - place.start);
    this.emit(0);
  }
  /** A history has gaps where recording was off: frees of what is not there are passed over. */
  free({ action, address, stream }, next, began) {
    this.stream(stream);
    const found = this.live.get(address);
    if (!found) return;
    if (action === "free_completed") { this.completed(address); return; }
    if (found.asked) return;
    found.asked = true;
    this.requests += 1;
    const isAtOnce = next?.action === "free_completed" && next.address === address && next.time - began <= this.now;
    if (!isAtOnce) { this.backs.put(this.made - found.index); this.emit(6); }
  }
  completed(address) {
    this.requests += 1;
    this.backs.put(this.made - this.live.get(address).index);
    this.live.delete(address);
    this.emit(1);
  }
  /** The label of a call stack, whose innermost frame comes first. */
  stack(frames) {
    if (!Array.isArray(frames)) return 0;
    if (!this.stacks.has(frames)) this.stacks.set(frames, frames.slice(0, PICKLE_DEPTH).reduceRight((parent, frame) => this.label(parent, frame), 0));
    return this.stacks.get(frames);
  }
  label(parent, { name, filename, line }) {
    if (typeof name !== "string" || name === "??") return parent;
    const file = String(filename ?? "").split(/[/\\]/).at(-1);
    const text = line === undefined || !file || file === "??" ? name : `${name} ${file}:${line}`;
    const key = `${parent} ${text}`;
    if (!this.known.has(key)) this.known.set(key, this.labels.push({ parent, text }));
    return this.known.get(key);
  }
}

/** Reads a snapshot: the report of its busiest device, and that report's events. */
function readSnapshot(bytes, title) {
  const { segments, device_traces: traces } = new Pickle(bytes).read() ?? {};
  if (!Array.isArray(segments)) throw new Error("it is no memory snapshot of PyTorch: it has no `segments`");
  const events = (traces ?? []).reduce((most, each) => (each.length > most.length ? each : most), []);
  const device = Math.max(0, (traces ?? []).indexOf(events));
  const entries = events.map(snapshotEntry);
  const history = new History();
  history.begin(snapshotStart(segments.filter((segment) => (segment.device ?? device) === device), entries));
  entries.forEach((entry, at) => history.event(entry, entries[at + 1], entries[0].time));
  const store = assemble(Uint8Array.from(history.kinds), ...history.columns);
  const facts = [{ name: "source", value: "PyTorch memory snapshot" }, { name: "recording", value: `PyTorch device ${device}` }];
  return { store, report: { schema: 2, title, facts, figures: snapshotFigures(history, store), labels: history.labels, heaps: [{ id: 0, name: "heap 0", size: null }],
    placed_by_model: null, comparison: [], moments: [], out_of_memory: [], defragmentation: [] } };
}

function snapshotFigures(history, store) {
  const most = (values) => values.reduce((top, value) => Math.max(top, value), 0);
  const calls = store.driver.length;
  return { events: history.requests, allocations: store.allocations, peak_live_bytes: most(store.live), peak_reserved_bytes: calls ? most(store.reserved) : null,
    driver_calls: calls || null, oom: store.failures.length, duration_us: store.duration };
}
