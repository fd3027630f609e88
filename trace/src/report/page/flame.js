// Labels as a flame: each as wide as what lies under it.
const STEP = 22;

class Flame {
  constructor(tree, store) {
    this.tree = tree; this.store = store;
    this.canvas = $("flame");
    this.measure = "bytes";
    this.root = 0;
    this.draw = framed(() => this.paint());
    if (tree.bySize) $("flame-title").textContent = "By size (the recording has no tags)";
    if (!store) for (const option of $("flame-measure").options) option.disabled = option.value !== "moment";
    $("flame-measure").value = store ? "bytes" : "moment";
    this.listen();
  }
  /** Sums by label, own and with everything below. */
  weigh(moment) {
    this.moment = moment ?? this.moment;
    const own = new Float64Array(this.tree.text.length);
    if (this.measure === "moment") {
      for (const block of this.moment?.blocks ?? []) for (const span of block.spans) own[span.label] += span.size;
    } else {
      this.weighStore(own);
    }
    const { sum, children } = this.tree.sums(own);
    Object.assign(this, { sum, children });
    this.draw();
  }
  weighStore(own) {
    const { size, label, start, end, time, n } = this.store;
    const last = n ? time[n - 1] : 0;
    for (let index = 0; index < size.length; index += 1) {
      const until = end[index] < n ? time[end[index]] : last;
      own[label[index]] += this.measure === "count" ? 1
        : this.measure === "time" ? size[index] * ((until - time[start[index]]) / 1e6) : size[index];
    }
  }
  listen() {
    $("flame-measure").addEventListener("change", (event) => { this.measure = event.target.value; this.root = 0; this.weigh(); });
    $("flame-reset").addEventListener("click", () => { this.root = 0; this.draw(); });
    this.canvas.addEventListener("click", (event) => {
      const box = this.hit(event);
      if (box) { this.root = box.label === this.root ? this.tree.parent[this.root] : box.label; this.draw(); }
    });
    this.canvas.addEventListener("pointermove", (event) => {
      const box = this.hit(event);
      tip(event, box ? `${this.tree.path(box.label) || "all"}\n${this.say(this.sum[box.label])}, ${percent(this.sum[box.label] / this.sum[0])}` : "");
    });
    this.canvas.addEventListener("pointerleave", (event) => tip(event, ""));
  }
  say(value) {
    if (this.measure === "count") return `${whole(value)} allocations`;
    return this.measure === "time" ? `${bytes(value)} · s` : bytes(value);
  }
  hit(event) {
    const bounds = this.canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - bounds.left, event.clientY - bounds.top];
    return this.boxes?.find((box) => x >= box.x && x < box.x + box.width && y >= box.y && y < box.y + STEP);
  }
  /** Lays the boxes out; whatever is narrower than half a pixel is left out with all below it. */
  lay(width) {
    const boxes = [];
    const todo = [{ label: this.root, x: 0, width, depth: 0 }];
    while (todo.length) {
      const box = todo.pop();
      boxes.push({ ...box, y: box.depth * STEP });
      let x = box.x;
      for (const child of this.children.get(box.label) ?? []) {
        const wide = (this.sum[child] / this.sum[this.root]) * width;
        if (wide < 0.5) break;
        todo.push({ label: child, x, width: wide, depth: box.depth + 1 });
        x += wide;
      }
    }
    return boxes;
  }
  paint() {
    const ready = this.sum && this.sum[this.root] > 0;
    const width = this.canvas.clientWidth;
    this.boxes = ready ? this.lay(width) : [];
    const depth = this.boxes.reduce((most, box) => Math.max(most, box.depth), 0) + 1;
    const { context } = surface(this.canvas, Math.max(3, depth) * STEP + 2);
    if (!ready) { context.fillStyle = style("--soft"); context.fillText("Nothing is live at this moment.", 4, 15); }
    for (const box of this.boxes) {
      context.fillStyle = box.label === 0 ? style("--free") : colorOf(this.tree.group(box.label));
      context.globalAlpha = box.label === 0 ? 1 : Math.max(0.55, 1 - 0.06 * box.depth);
      context.fillRect(box.x, box.y, Math.max(box.width - 1, 0.5), STEP - 2);
      context.globalAlpha = 1;
      const text = box.label === 0 ? `all: ${this.say(this.sum[0])}` : `${this.tree.text[box.label]} ${this.say(this.sum[box.label])}`;
      if (box.label === 0) { context.fillStyle = style("--text"); context.fillText(text, 6, box.y + 14); }
      else if (box.width > 40) label(context, text, box.x + 4, box.y + 14, box.width - 8);
    }
    $("flame-readout").textContent = this.root ? this.tree.path(this.root) : "";
  }
}
