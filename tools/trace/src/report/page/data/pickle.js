// Reads a pickle's plain data: lists, dictionaries, text and whole numbers. Nothing of it is run: what names or calls anything is refused.
/** The keys of a memory snapshot that say something about memory; values of others are dropped. */
const SNAPSHOT_KEYS = new Set(["segments", "device_traces", "action", "addr", "size", "stream", "time_us", "frames", "filename", "line", "name",
  "address", "total_size", "blocks", "state", "requested_size", "device"]);
/** Containers inside containers, at most. */
const PICKLE_DEPTH = 64;

class Dictionary {
  set(key, value) { if (SNAPSHOT_KEYS.has(key)) this[key] = value; }
}

class Pickle {
  constructor(bytes) {
    Object.assign(this, { bytes, at: 0, stack: [], marks: [], memo: [] });
    this.text = new TextDecoder();
  }
  read() {
    for (let code = this.number(1); code !== 0x2e; code = this.number(1)) this.step(code);
    return this.pop();
  }
  take(length) {
    const start = this.at;
    this.at += length;
    if (this.at > this.bytes.length) throw new Error("the pickle ends in the middle");
    return start;
  }
  number(width) {
    const start = this.take(width);
    let value = 0;
    for (let at = this.at - 1; at >= start; at -= 1) value = value * 256 + this.bytes[at];
    return value;
  }
  signed(width) {
    const value = this.number(width);
    return width > 0 && this.bytes[this.at - 1] > 127 ? value - 256 ** width : value;
  }
  string(length) {
    const start = this.take(length);
    this.stack.push(this.text.decode(this.bytes.subarray(start, this.at)));
  }
  /** Values below this belong to an enclosing container. */
  get floor() { return this.marks.at(-1) ?? 0; }
  top(kind) {
    const top = this.stack.at(-1);
    if (this.stack.length <= this.floor || (kind && !(top instanceof kind))) throw new Error("the pickle is damaged");
    return top;
  }
  pop() { const top = this.top(); this.stack.pop(); return top; }
  /** Takes the values above the last mark. */
  marked() {
    if (!this.marks.length) throw new Error("the pickle is damaged");
    return this.stack.splice(this.marks.pop());
  }
  mark() {
    if (this.marks.length >= PICKLE_DEPTH) throw new Error(`the pickle has more than ${PICKLE_DEPTH} containers inside containers`);
    this.marks.push(this.stack.length);
  }
  tuple(length) {
    if (this.stack.length - length < this.floor) throw new Error("the pickle is damaged");
    this.stack.push(this.stack.splice(this.stack.length - length));
  }
  fill(pairs) {
    const into = this.top(Dictionary);
    for (let at = 1; at < pairs.length; at += 2) into.set(pairs[at - 1], pairs[at]);
  }
  recall(index) {
    if (index >= this.memo.length) throw new Error("the pickle is damaged");
    this.stack.push(this.memo[index]);
  }
  step(code) {
    switch (code) {
      case 0x80: this.take(1); break; // The protocol.
      case 0x95: this.take(8); break; // The length of a frame.
      case 0x4e: case 0x8f: this.stack.push(null); break;
      case 0x88: case 0x89: this.stack.push(Number(code === 0x88)); break;
      case 0x47: this.take(8); this.stack.push(null); break; // A float.
      case 0x4a: this.stack.push(this.signed(4)); break;
      case 0x4b: this.stack.push(this.number(1)); break;
      case 0x4d: this.stack.push(this.number(2)); break;
      case 0x8a: this.stack.push(this.signed(this.number(1))); break;
      case 0x8c: case 0x55: this.string(this.number(1)); break;
      case 0x58: case 0x54: this.string(this.number(4)); break;
      case 0x8d: this.string(this.number(8)); break;
      case 0x43: this.take(this.number(1)); this.stack.push(null); break; // Bytes.
      case 0x42: this.take(this.number(4)); this.stack.push(null); break;
      case 0x68: this.recall(this.number(1)); break;
      case 0x6a: this.recall(this.number(4)); break;
      case 0x71: this.keep(this.number(1)); break;
      case 0x72: this.keep(this.number(4)); break;
      case 0x94: this.memo.push(this.top()); break;
      case 0x28: this.mark(); break;
      case 0x30: this.pop(); break;
      case 0x31: case 0x90: this.marked(); break;
      case 0x32: this.stack.push(this.top()); break;
      case 0x7d: this.stack.push(new Dictionary()); break;
      case 0x5d: case 0x29: this.stack.push([]); break;
      case 0x85: case 0x86: case 0x87: this.tuple(code - 0x84); break;
      case 0x74: case 0x6c: this.stack.push(this.marked()); break;
      case 0x64: { const pairs = this.marked(); this.stack.push(new Dictionary()); this.fill(pairs); break; }
      case 0x61: { const item = this.pop(); this.top(Array).push(item); break; }
      case 0x65: { const items = this.marked(); const into = this.top(Array); for (const item of items) into.push(item); break; }
      case 0x73: { const [value, key] = [this.pop(), this.pop()]; this.fill([key, value]); break; }
      case 0x75: this.fill(this.marked()); break;
      default: throw new Error("the pickle holds more than plain data; nothing of it was run");
    }
  }
  /** Every pickler numbers what it remembers from zero up. */
  keep(index) {
    if (index > this.memo.length) throw new Error("the pickle is damaged");
    this.memo[index] = this.top();
  }
}
