// What is away from the device while its pool sleeps, or is host memory at its addresses.
/** By residence; the first is the device. The last is no residence of blocks: parts of any may be there. */
const AWAY = ["", "asleep in host memory", "asleep in files", "asleep, bytes dropped", "host-mapped"];

/** Bytes that are away after each event, by residence; frees and moves are followed block by block. */
class Away {
  constructor(store) {
    this.store = store;
    this.bytes = AWAY.map((name) => new Float64Array(name ? store.n : 0));
    /** Event, block and residence, in order. */
    this.changes = [];
    this.sums = AWAY.map(() => 0);
    this.block = new Int32Array(store.allocations).fill(-1);
    this.live = new Float64Array(store.blocks);
    this.residence = new Uint8Array(store.blocks);
    /** Bytes that were mapped, or unmapped, in order. */
    this.mapped = [];
  }
  /** Host memory was taken, or given back where the bytes are negative. Returns the number of the change. */
  map(amount) {
    this.sums[AWAY.length - 1] += amount;
    return this.mapped.push(amount) - 1;
  }
  add(block, amount) {
    if (block < 0) return;
    this.live[block] += amount;
    this.sums[this.residence[block]] += amount;
  }
  /** An allocation lies in another block now, -1 for none. */
  put(allocation, block) {
    this.add(this.block[allocation], -this.store.size[allocation]);
    this.add(block, this.store.size[allocation]);
    this.block[allocation] = block;
  }
  /** What lies in a block is here from now on. */
  send(event, block, residence) {
    this.sums[this.residence[block]] -= this.live[block];
    this.sums[residence] += this.live[block];
    this.residence[block] = residence;
    this.changes.push({ event, block, residence, bytes: this.live[block] });
  }
  note(event) { for (let at = 1; at < AWAY.length; at += 1) this.bytes[at][event] = this.sums[at]; }
  /** The last change of a block up to an event. */
  changeOf(block, event) { return this.changes.findLast((change) => change.event <= event && change.block === block); }
  /** Where the bytes of a block are after an event, in words; nothing for the device. */
  say(block, event) { return AWAY[this.changeOf(block, event)?.residence ?? 0]; }
  /** A line for each residence that bytes ever have. */
  get lines() { return AWAY.map((name, at) => new Line(name, "away", null, this.bytes[at])).filter((line) => line.top > 0); }
}
