// Labels as a flame: each as wide as what lies under it.
const FLAME_ROW = 22;
const MEASURES = { moment: "bytes live at the moment", bytes: "bytes allocated in all", time: "bytes × time", count: "number of allocations" };

class Flame {
  constructor(app, canvas, say) {
    Object.assign(this, { app, canvas, say });
    this.measure = app.store ? "bytes" : "moment";
    this.root = 0;
    this.draw = framed(() => this.paint());
    this.listen();
  }
  update(part) {
    if (part === "groups") this.draw();
    else if (this.measure === "moment" && (part === "event" || part === "moment")) this.weigh();
  }
  /** Sums by label, own and with everything below. */
  weigh() {
    const { labels, store, event, moment } = this.app;
    const own = new Float64Array(labels.text.length);
    if (this.measure !== "moment") this.weighAll(own);
    else if (store) for (const index of store.liveAt(event)) own[store.label[index]] += store.size[index];
    else for (const block of moment.blocks) for (const span of block.spans) own[span.label] += span.size;
    Object.assign(this, labels.sums(own));
    this.draw();
  }
  weighAll(own) {
    const { store } = this.app;
    for (let index = 0; index < store.allocations; index += 1) {
      own[store.label[index]] += this.measure === "count" ? 1 : this.measure === "time" ? store.size[index] * (store.lifetime(index) / 1e6) : store.size[index];
    }
  }
  set(measure) { this.measure = measure; this.root = 0; this.weigh(); }
  zoomOut() { this.root = 0; this.draw(); }
  listen() {
    this.canvas.addEventListener("click", (event) => {
      const box = this.hit(event);
      if (box) { this.root = box.label === this.root ? this.app.labels.parent[this.root] : box.label; this.draw(); }
    });
    this.canvas.addEventListener("pointermove", (event) => {
      const box = this.hit(event);
      tip(event, box ? `${this.app.labels.path(box.label) || "all"}\n${this.amount(this.sum[box.label])}, ${percent(this.sum[box.label] / this.sum[0])}` : "");
    });
    this.canvas.addEventListener("pointerleave", (event) => tip(event, ""));
  }
  amount(value) {
    if (this.measure === "count") return counted(value, "allocation");
    return this.measure === "time" ? `${bytes(value)} · s` : bytes(value);
  }
  hit(event) {
    const [x, y] = within(this.canvas, event);
    return this.boxes?.find((box) => x >= box.x && x < box.x + box.width && y >= box.y && y < box.y + FLAME_ROW);
  }
  /** Lays the boxes out; whatever is narrower than half a pixel is left out with all below it. */
  lay(width) {
    const boxes = [];
    const todo = [{ label: this.root, x: 0, width, depth: 0 }];
    while (todo.length) {
      const box = todo.pop();
      boxes.push({ ...box, y: box.depth * FLAME_ROW });
      let { x } = box;
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
    const ready = this.sum?.[this.root] > 0;
    this.boxes = ready ? this.lay(this.canvas.clientWidth) : [];
    const depth = this.boxes.reduce((most, box) => Math.max(most, box.depth), 0) + 1;
    const { context } = surface(this.canvas, Math.max(2, depth) * FLAME_ROW + 2);
    if (!ready) caption(context, "Nothing is live at this moment.", 4, 15, this.canvas.clientWidth, style("--soft"));
    for (const box of this.boxes) this.paintBox(context, box);
    this.say.textContent = this.root ? this.app.labels.path(this.root) : "";
  }
  paintBox(context, box) {
    const color = box.label === 0 ? style("--free") : groupColor(this.app.groups.ofSpan({ label: box.label, size: 0 }));
    context.fillStyle = color;
    context.fillRect(box.x, box.y, Math.max(box.width - 1, 0.5), FLAME_ROW - 2);
    const text = `${box.label === 0 ? "all:" : this.app.labels.text[box.label]} ${this.amount(this.sum[box.label])}`;
    if (box.width > 40) caption(context, text, box.x + 4, box.y + 14, box.width - 8, box.label === 0 ? style("--text") : inkOn(color));
  }
}

panel({
  id: "flame",
  title: "By tag and name",
  offered: (app) => app.labels.any,
  build(app, body) {
    const [canvas, say] = [make("canvas"), make("p", undefined, "readout")];
    canvas.id = "flame-canvas";
    const flame = new Flame(app, canvas, say);
    const bar = make("div", undefined, "bar");
    if (app.store) {
      const width = chooser("Width is", "flame-measure", Object.entries(MEASURES), (value) => flame.set(value));
      width.select.value = flame.measure;
      bar.append(width.label);
    }
    bar.append(button("All", "", () => flame.zoomOut()), make("span", "Click to look into one.", "hint"));
    body.append(bar, canvas, say);
    flame.weigh();
    return flame;
  },
});
