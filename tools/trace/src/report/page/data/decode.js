// From packed columns to typed arrays. The format is that of `columns` and `curve` in docs/report.schema.json.
const NEVER = 0xffffffff;

function unbase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const binary = atob(text);
  const packed = new Uint8Array(binary.length);
  for (let at = 0; at < binary.length; at += 1) packed[at] = binary.charCodeAt(at);
  return packed;
}

async function inflate(text) {
  const plain = new Blob([unbase64(text)]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(plain).arrayBuffer());
}

/** Reads numbers of seven bits a byte. Past 53 bits they lose their last digits, which no picture shows. */
class Numbers {
  constructor(data) { this.data = data; this.at = 0; }
  next() {
    let byte = this.data[this.at++];
    if (byte < 128) return byte;
    let [value, scale] = [byte & 127, 128];
    do {
      byte = this.data[this.at++];
      value += (byte & 127) * scale;
      scale *= 128;
    } while (byte >= 128);
    return value;
  }
}

function count(kinds, wanted) {
  let found = 0;
  for (let at = 0; at < kinds.length; at += 1) if (kinds[at] === wanted) found += 1;
  return found;
}

/** Every event of a recording, and every allocation, block and move, each by its number. */
class Store {
  constructor(kinds) {
    const n = kinds.length;
    const [allocations, blocks, moves] = [count(kinds, 0), count(kinds, 2) + count(kinds, 9), count(kinds, 5)];
    this.n = n;
    this.kinds = kinds;
    // By event. `ref` is the number of the allocation, block, move or failure that it is about.
    this.time = new Float64Array(n);
    this.ref = new Uint32Array(n);
    this.live = new Float64Array(n);
    this.reserved = new Float64Array(n);
    // By allocation. `start`, `end` and `asked` (the free was asked for) are events.
    this.allocations = allocations;
    this.size = new Float64Array(allocations);
    this.label = new Uint32Array(allocations);
    this.stream = new Uint16Array(allocations);
    this.start = new Uint32Array(allocations);
    this.end = new Uint32Array(allocations).fill(NEVER);
    this.asked = new Uint32Array(allocations).fill(NEVER);
    this.block = new Int32Array(allocations).fill(-1);
    this.offset = new Float64Array(allocations);
    // By block.
    this.blocks = blocks;
    this.blockSize = new Float64Array(blocks);
    this.blockHeap = new Uint8Array(blocks);
    this.blockPaged = new Uint8Array(blocks);
    this.blockStart = new Uint32Array(blocks);
    this.blockEnd = new Uint32Array(blocks).fill(NEVER);
    // By move.
    this.moveEvent = new Uint32Array(moves);
    this.moveAllocation = new Uint32Array(moves);
    this.moveBlock = new Int32Array(moves);
    this.moveOffset = new Float64Array(moves);
    this.failures = [];
    /** What was taken from the driver or given back: event, heap, bytes. */
    this.driver = [];
    this.placed = false;
    /** What is away while pools sleep, or is host memory; `null` where nothing ever is. */
    this.away = count(kinds, 10) + count(kinds, 11) ? new Away(this) : null;
  }
  get duration() { return this.n ? this.time[this.n - 1] : 0; }
  isLive(allocation, event) { return this.start[allocation] <= event && this.end[allocation] > event; }
  /** Microseconds from its allocation to its free, or to the end of the recording. */
  lifetime(allocation) {
    const end = this.end[allocation];
    return (end < this.n ? this.time[end] : this.duration) - this.time[this.start[allocation]];
  }
  /** Allocations made up to and with an event. */
  made(event) { return firstIndex(this.allocations, (index) => this.start[index] > event); }
  /** The allocations that are live after an event, oldest first. */
  liveAt(event) {
    const [found, made] = [[], this.made(event)];
    for (let index = 0; index < made; index += 1) if (this.end[index] > event) found.push(index);
    return found;
  }
}

const KINDS = ["allocate", "free", "block taken", "block given back", "request failed", "moved", "free asked for",
  "pages taken", "pages given back", "addresses taken", "slept or woke up", "host pages taken", "host pages given back"];

async function decode(columns) {
  const names = ["kinds", "steps", "sizes", "labels", "streams", "backs", "blocks", "offsets"];
  const [kinds, ...raw] = await Promise.all(names.map((name) => inflate(columns[name])));
  return assemble(kinds, ...raw.map((data) => new Numbers(data)));
}

/** Puts events together, from the kind of each and from columns whose `next()` is the next number. */
function assemble(kinds, steps, sizes, labels, streams, backs, blocks, offsets) {
  const store = new Store(kinds);
  let [time, live, reserved, made, held, moves] = [0, 0, 0, 0, 0, 0];
  const take = (event, heap, amount) => { reserved += amount; store.driver.push({ event, heap, bytes: amount }); };
  for (let event = 0; event < store.n; event += 1) {
    time += steps.next();
    let ref = 0;
    switch (kinds[event]) {
      case 0:
        ref = made++;
        store.size[ref] = sizes.next();
        store.label[ref] = labels.next();
        store.stream[ref] = streams.next();
        store.start[ref] = event;
        store.block[ref] = blocks.next() - 1;
        if (store.block[ref] >= 0) { store.offset[ref] = offsets.next(); store.placed = true; }
        store.away?.put(ref, store.block[ref]);
        live += store.size[ref];
        break;
      case 1: ref = made - backs.next(); store.end[ref] = event; live -= store.size[ref]; store.away?.put(ref, -1); break;
      case 2:
      case 9:
        ref = held++;
        store.blockPaged[ref] = kinds[event] === 9 ? 1 : 0;
        store.blockSize[ref] = sizes.next();
        store.blockHeap[ref] = blocks.next();
        store.blockStart[ref] = event;
        if (!store.blockPaged[ref]) take(event, store.blockHeap[ref], store.blockSize[ref]);
        break;
      case 3:
        ref = blocks.next();
        store.blockEnd[ref] = event;
        if (!store.blockPaged[ref]) take(event, store.blockHeap[ref], -store.blockSize[ref]);
        break;
      case 4: ref = store.failures.length; store.failures.push({ event, size: sizes.next(), stream: streams.next() }); break;
      case 5:
        ref = moves++;
        store.moveEvent[ref] = event;
        store.moveBlock[ref] = blocks.next();
        store.moveOffset[ref] = offsets.next();
        store.moveAllocation[ref] = made - backs.next();
        store.placed = true;
        store.away?.put(store.moveAllocation[ref], store.moveBlock[ref]);
        break;
      case 6: ref = made - backs.next(); store.asked[ref] = event; break;
      case 7: ref = store.driver.length; { const bytes = sizes.next(); take(event, blocks.next(), bytes); } break;
      case 8: ref = store.driver.length; { const bytes = sizes.next(); take(event, blocks.next(), -bytes); } break;
      case 10: ref = blocks.next(); store.away.send(event, ref, sizes.next()); break;
      case 11: blocks.next(); ref = store.away.map(sizes.next()); break;
      case 12: blocks.next(); ref = store.away.map(-sizes.next()); break;
      default: throw new Error(`an event of unknown kind ${kinds[event]}`);
    }
    store.ref[event] = ref;
    store.time[event] = time;
    store.live[event] = live;
    store.reserved[event] = reserved;
    store.away?.note(event);
  }
  return store;
}

/** A step curve by event: `values[n]` holds from event `events[n]` on. */
async function decodeCurve(curve, store) {
  const [steps, amounts] = (await Promise.all([inflate(curve.steps), inflate(curve.bytes)])).map((data) => new Numbers(data));
  const [events, values] = [new Uint32Array(curve.count), new Float64Array(curve.count)];
  let [request, event, passed] = [0, 0, 0];
  for (let point = 0; point < curve.count; point += 1) {
    request += steps.next();
    // Points count allocations and frees; find the event that is this one.
    while (event < store.n && (store.kinds[event] > 1 || passed < request)) { if (store.kinds[event] <= 1) passed += 1; event += 1; }
    events[point] = Math.min(event, store.n - 1);
    values[point] = amounts.next();
  }
  return { events, values };
}
