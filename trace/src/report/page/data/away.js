// What is away from the device while its pool sleeps.
const AWAY = ["asleep in host memory", "asleep in files", "asleep, bytes dropped"];

/** Bytes that are away after each event, by where they are; frees and moves are followed block by block. */
class Away {
  constructor(store) {
    this.store = store;
    this.bytes = AWAY.map(() => new Float64Array(store.n));
    /** Event, block and place, -1 for the device, in order. */
    this.changes = [];
    this.sums = AWAY.map(() => 0);
    this.block = new Int32Array(store.allocations).fill(-1);
    this.live = new Float64Array(store.blocks);
    this.place = new Int8Array(store.blocks).fill(-1);
  }
  add(block, amount) {
    if (block < 0) return;
    this.live[block] += amount;
    if (this.place[block] >= 0) this.sums[this.place[block]] += amount;
  }
  /** An allocation lies in another block now, -1 for none. */
  put(allocation, block) {
    this.add(this.block[allocation], -this.store.size[allocation]);
    this.add(block, this.store.size[allocation]);
    this.block[allocation] = block;
  }
  /** What lies in a block goes to a place. */
  send(event, block, place) {
    if (this.place[block] >= 0) this.sums[this.place[block]] -= this.live[block];
    if (place >= 0) this.sums[place] += this.live[block];
    this.place[block] = place;
    this.changes.push({ event, block, place });
  }
  note(event) { this.sums.forEach((sum, place) => { this.bytes[place][event] = sum; }); }
  /** Where the bytes of a block are after an event: -1 for the device. */
  placeAt(block, event) { return this.changes.findLast((change) => change.event <= event && change.block === block)?.place ?? -1; }
  /** A line for each place where bytes ever are. */
  get lines() { return AWAY.map((name, place) => new Line(name, "away", null, this.bytes[place])).filter((line) => line.top > 0); }
}
