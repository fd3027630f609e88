// The whole recording in a strip, with the part that the timeline shows.
class Overview {
  constructor(app, timeline, canvas) {
    Object.assign(this, { app, timeline, canvas });
    this.draw = framed(() => this.paint());
    this.listen();
  }
  get view() { return this.timeline.view; }
  place(event) { return (within(this.canvas, event)[0] / this.canvas.clientWidth) * this.view.axis.end; }
  /** Which part of the brush is at a place: an end, the inside, or none of it. */
  part(place) {
    const near = (8 / this.canvas.clientWidth) * this.view.axis.end;
    if (Math.abs(place - this.view.from) < near) return "from";
    if (Math.abs(place - this.view.to) < near) return "to";
    return place > this.view.from && place < this.view.to && !this.isWide ? "inside" : "new";
  }
  get isWide() { return this.view.width >= this.view.axis.end; }
  listen() {
    let [held, origin] = ["", 0];
    pointers(this.canvas, {
      press: (event) => { origin = this.place(event); held = this.part(origin); },
      drag: (dx, dy, event) => {
        const place = this.place(event);
        if (held === "inside") this.view.pan((dx / this.canvas.clientWidth) * this.view.axis.end);
        else if (held === "from") this.view.show(Math.min(place, this.view.to - this.view.axis.least), this.view.to);
        else if (held === "to") this.view.show(this.view.from, Math.max(place, this.view.from + this.view.axis.least));
        else this.view.show(Math.min(origin, place), Math.max(origin, place));
        this.timeline.draw();
      },
      click: (event) => { const place = this.place(event); this.view.show(place - this.view.width / 2, place + this.view.width / 2); this.timeline.draw(); },
    });
    this.canvas.addEventListener("pointermove", (event) => {
      this.canvas.style.cursor = { from: "ew-resize", to: "ew-resize", inside: "grab", new: "crosshair" }[this.part(this.place(event))];
    });
    this.canvas.addEventListener("dblclick", () => { this.view.reset(); this.timeline.draw(); });
  }
  paint() {
    const { context, width, height } = surface(this.canvas);
    const { axis } = this.view;
    const top = this.app.store.live[this.app.peak] * 1.04;
    const columns = new Columns(new View(axis, top), Math.max(1, Math.floor(width)), this.app.livePeaks);
    context.fillStyle = style("--rest");
    for (let x = 0; x < columns.width; x += 1) {
      const tall = ((this.app.store.live[columns.sample[x]] ?? 0) / top) * height;
      context.fillRect(x, height - tall, 1, tall);
    }
    this.paintHits(context, width, height);
    const [from, to] = [this.view.from, this.view.to].map((place) => (place / axis.end) * width);
    context.fillStyle = style("--veil");
    context.fillRect(0, 0, from, height);
    context.fillRect(to, 0, width - to, height);
    context.strokeStyle = style("--accent");
    context.lineWidth = 2;
    context.strokeRect(from + 1, 1, Math.max(2, to - from - 2), height - 2);
  }
  /** Where allocations begin that the search found. */
  paintHits(context, width, height) {
    if (!this.app.hits) return;
    const { axis } = this.view;
    const { store } = this.app;
    context.fillStyle = style("--accent");
    let drawn = -1;
    for (const index of this.app.hits.list) {
      const x = Math.floor((axis.place(store.start[index]) / axis.end) * width);
      if (x !== drawn) context.fillRect(x, 0, 1, height / 3);
      drawn = x;
    }
  }
}
