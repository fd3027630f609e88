// What lies where at one moment.

/** The map after an event, in the shape of a moment of the report; spans also name their allocation. */
function momentAt(store, event) {
  const blocks = new Map();
  for (let block = 0; block < store.blocks && store.blockStart[block] <= event; block += 1) {
    if (store.blockEnd[block] > event) blocks.set(block, emptyBlock(store, block));
  }
  const moved = movesUntil(store, event);
  for (const index of store.liveAt(event)) {
    const move = moved.get(index);
    const block = blocks.get(move === undefined ? store.block[index] : store.moveBlock[move]);
    if (!block) continue;
    const offset = move === undefined ? store.offset[index] : store.moveOffset[move];
    const state = store.asked[index] <= event ? "pending" : "live";
    block.spans.push({ offset, size: store.size[index], label: store.label[index], state, allocation: index });
  }
  for (const block of blocks.values()) {
    block.spans.sort((a, b) => a.offset - b.offset);
    // Of a block of pages, addresses are shown up to the end of the last allocation.
    if (!block.unmapped) block.size = block.spans.reduce((end, span) => Math.max(end, span.offset + span.size), 0);
    if (!block.size) blocks.delete(block.block);
  }
  return { title: "", time_us: store.time[event], reserved: reservedAt(store, event), blocks: [...blocks.values()] };
}

function emptyBlock(store, block) {
  return { block, heap: store.blockHeap[block], size: store.blockSize[block], spans: [], unmapped: store.blockPaged[block] ? null : [] };
}

/** The last move of each allocation up to an event. */
function movesUntil(store, event) {
  const moved = new Map();
  for (let move = 0; move < store.moveEvent.length && store.moveEvent[move] <= event; move += 1) moved.set(store.moveAllocation[move], move);
  return moved;
}

/** Where an allocation lies after an event: `{block, offset}`, or `null` when nobody knows. */
function placeAt(store, allocation, event) {
  for (let move = firstIndex(store.moveEvent.length, (index) => store.moveEvent[index] > event) - 1; move >= 0; move -= 1) {
    if (store.moveAllocation[move] === allocation) return { block: store.moveBlock[move], offset: store.moveOffset[move] };
  }
  return store.block[allocation] < 0 ? null : { block: store.block[allocation], offset: store.offset[allocation] };
}

/** Bytes held from the driver after an event, by heap. */
function reservedAt(store, event) {
  const heaps = new Map();
  for (const change of store.driver) {
    if (change.event > event) break;
    heaps.set(change.heap, (heaps.get(change.heap) ?? 0) + change.bytes);
  }
  return [...heaps].map(([heap, amount]) => ({ heap, bytes: amount }));
}

/** Bytes held from the driver at a moment. */
const reservedIn = (moment) => sumOf(moment.reserved, (heap) => heap.bytes);
const sumOf = (list, value) => list.reduce((sum, each) => sum + value(each), 0);

/** Free runs of memory in a block: where neither an allocation nor an unmapped address is. */
function holesOf(block) {
  const gaps = (block.unmapped ?? []).map((gap) => ({ ...gap, unmapped: true }));
  const taken = gaps.length ? [...block.spans, ...gaps].sort((a, b) => a.offset - b.offset) : block.spans;
  const holes = [];
  let [end, before] = [0, null];
  for (const piece of [...taken, null]) {
    const next = piece ? piece.offset : block.size;
    if (next > end) holes.push({ block, offset: end, size: next - end, before, after: piece });
    if (piece) { end = Math.max(end, piece.offset + piece.size); before = piece; }
  }
  return holes;
}

const largestHole = (moment) => moment.blocks.reduce((most, block) => holesOf(block).reduce((best, hole) => Math.max(best, hole.size), most), 0);
