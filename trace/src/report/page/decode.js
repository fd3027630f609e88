// From packed columns to typed arrays. The format is that of `Columns` in docs/report.schema.json.
const NEVER = 0xffffffff;

async function inflate(text) {
  const binary = atob(text);
  const packed = new Uint8Array(binary.length);
  for (let at = 0; at < binary.length; at += 1) packed[at] = binary.charCodeAt(at);
  const stream = new DecompressionStream("deflate");
  const writer = stream.writable.getWriter();
  // Not awaited here: it ends only as the reader below takes what comes out. A failure shows there too.
  writer.write(packed).then(() => writer.close()).catch(() => {});
  const [parts, reader] = [[], stream.readable.getReader()];
  for (let part = await reader.read(); !part.done; part = await reader.read()) parts.push(part.value);
  const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) { whole.set(part, at); at += part.length; }
  return whole;
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

async function decode(columns) {
  const names = ["kinds", "steps", "sizes", "labels", "backs", "blocks", "offsets"];
  const raw = await Promise.all(names.map((name) => inflate(columns[name])));
  const kinds = raw[0];
  const [steps, sizes, labels, backs, blocks, offsets] = raw.slice(1).map((data) => new Numbers(data));
  const n = kinds.length;
  const [allocations, blockCount, moveCount] = [count(kinds, 0), count(kinds, 2) + count(kinds, 9), count(kinds, 5)];
  const store = {
    n, kinds,
    time: new Float64Array(n), ref: new Uint32Array(n), live: new Float64Array(n), reserved: new Float64Array(n),
    size: new Float64Array(allocations), label: new Uint32Array(allocations), start: new Uint32Array(allocations),
    end: new Uint32Array(allocations).fill(NEVER), asked: new Uint32Array(allocations).fill(NEVER),
    block: new Int32Array(allocations).fill(-1), offset: new Float64Array(allocations),
    blockSize: new Float64Array(blockCount), blockHeap: new Uint8Array(blockCount), blockPaged: new Uint8Array(blockCount),
    blockStart: new Uint32Array(blockCount), blockEnd: new Uint32Array(blockCount).fill(NEVER),
    moveEvent: new Uint32Array(moveCount), moveBlock: new Int32Array(moveCount), moveOffset: new Float64Array(moveCount),
    failures: [], placed: false,
  };
  let [time, live, reserved, made, held, moves] = [0, 0, 0, 0, 0, 0];
  for (let event = 0; event < n; event += 1) {
    time += steps.next();
    let ref = 0;
    switch (kinds[event]) {
      case 0: {
        ref = made++;
        store.size[ref] = sizes.next();
        store.label[ref] = labels.next();
        store.start[ref] = event;
        store.block[ref] = blocks.next() - 1;
        if (store.block[ref] >= 0) { store.offset[ref] = offsets.next(); store.placed = true; }
        live += store.size[ref];
        break;
      }
      case 1: ref = made - backs.next(); store.end[ref] = event; live -= store.size[ref]; break;
      case 2:
      case 9:
        ref = held++;
        store.blockPaged[ref] = kinds[event] === 9 ? 1 : 0;
        store.blockSize[ref] = sizes.next();
        store.blockHeap[ref] = blocks.next();
        store.blockStart[ref] = event;
        if (!store.blockPaged[ref]) reserved += store.blockSize[ref];
        break;
      case 3:
        ref = blocks.next();
        store.blockEnd[ref] = event;
        if (!store.blockPaged[ref]) reserved -= store.blockSize[ref];
        break;
      case 7: reserved += sizes.next(); ref = blocks.next(); break;
      case 8: reserved -= sizes.next(); ref = blocks.next(); break;
      case 4: ref = store.failures.length; store.failures.push({ event, size: sizes.next() }); break;
      case 5:
        store.moveEvent[moves] = event;
        store.moveBlock[moves] = blocks.next();
        store.moveOffset[moves] = offsets.next();
        ref = made - backs.next();
        store.placed = true;
        moves += 1;
        break;
      default: ref = made - backs.next(); store.asked[ref] = event;
    }
    store.ref[event] = ref;
    store.time[event] = time;
    store.live[event] = live;
    store.reserved[event] = reserved;
  }
  return store;
}

/** The map after event `at`, in the shape of a moment of the report. */
function momentAt(store, at) {
  const made = firstIndex(store.size.length, (index) => store.start[index] > at);
  const blocks = new Map();
  for (let block = 0; block < store.blockSize.length && store.blockStart[block] <= at; block += 1) {
    if (store.blockEnd[block] > at) {
      blocks.set(block, { block, heap: store.blockHeap[block], size: store.blockSize[block], spans: [] });
    }
  }
  const moved = new Map();
  for (let move = 0; move < store.moveEvent.length && store.moveEvent[move] <= at; move += 1) {
    moved.set(store.ref[store.moveEvent[move]], move);
  }
  for (let index = 0; index < made; index += 1) {
    if (store.end[index] <= at) continue;
    const move = moved.get(index);
    const block = blocks.get(move === undefined ? store.block[index] : store.moveBlock[move]);
    if (!block) continue;
    const offset = move === undefined ? store.offset[index] : store.moveOffset[move];
    const state = store.asked[index] <= at ? "pending" : "live";
    block.spans.push({ offset, size: store.size[index], label: store.label[index], state });
  }
  for (const block of blocks.values()) {
    block.spans.sort((a, b) => a.offset - b.offset);
    // Of addresses, as much is shown as lies before the end of the last allocation.
    if (store.blockPaged[block.block]) block.size = block.spans.reduce((end, span) => Math.max(end, span.offset + span.size), 0);
    if (!block.size) blocks.delete(block.block);
  }
  return { title: "", time_us: store.n ? store.time[Math.min(at, store.n - 1)] : 0, blocks: [...blocks.values()] };
}
