// Blocks as rows, allocations as spans of them.
const MAP_ROW = 26;

/** A pattern of stripes, for addresses that have no memory. */
function stripes(context) {
  const tile = make("canvas");
  tile.width = tile.height = 8;
  const pen = tile.getContext("2d");
  pen.strokeStyle = style("--line");
  pen.beginPath(); pen.moveTo(-2, 6); pen.lineTo(6, -2); pen.moveTo(2, 10); pen.lineTo(10, 2); pen.stroke();
  return context.createPattern(tile, "repeat");
}

/** Draws one block into a box; spans that share a pixel are drawn once. */
function paintBlock(context, app, block, box, view) {
  const { x, y, width, height } = box;
  const scale = width / (view.to - view.from);
  const fill = (from, to, color) => {
    const [left, right] = [Math.max(0, (from - view.from) * scale), Math.min(width, (to - view.from) * scale)];
    if (right <= left) return;
    context.fillStyle = color;
    context.fillRect(x + left, y, right - left, height);
  };
  fill(0, block.size, style("--free"));
  if (!block.unmapped) fill(0, block.size, stripes(context));
  for (const { offset, size } of block.unmapped ?? []) {
    fill(offset, offset + size, style("--back"));
    fill(offset, offset + size, stripes(context));
  }
  const { spans } = block;
  let drawn = -1;
  const first = firstIndex(spans.length, (index) => spans[index].offset + spans[index].size > view.from);
  for (let index = first; index < spans.length && spans[index].offset < view.to; index += 1) {
    const span = spans[index];
    const from = Math.max(0, (span.offset - view.from) * scale);
    const to = Math.min(width, (span.offset + span.size - view.from) * scale);
    if (to <= drawn) continue;
    const left = Math.max(from, drawn);
    const wide = Math.max(to - left, 0.75);
    paintSpan(context, app, span, { x: x + left, y, width: wide, height });
    drawn = left + wide;
  }
  context.globalAlpha = 1;
}

function paintSpan(context, app, span, { x, y, width, height }) {
  const color = groupColor(app.groups.ofSpan(span));
  context.globalAlpha = app.isFaded(span) ? 0.2 : 1;
  context.fillStyle = color;
  context.fillRect(x, y, Math.max(width - (width > 3 ? 1 : 0), 0.5), height);
  if (span.state !== "live") {
    context.fillStyle = style("--hatch");
    context.fillRect(x, span.state === "pending" ? y : y + height - 5, width, 5);
  }
  if (span.allocation !== undefined && span.allocation === app.allocation) {
    context.strokeStyle = style("--text");
    context.lineWidth = 2;
    context.strokeRect(x + 1, y + 1, Math.max(1, width - 3), height - 2);
  }
  if (width > 46) caption(context, app.labels.text[span.label] || bytes(span.size), x + 4, y + height / 2 + 4, width - 8, inkOn(color));
}

class MemoryMap {
  constructor(app, parts) {
    Object.assign(this, { app }, parts);
    this.heaps = new Map(app.report.heaps.map((heap) => [heap.id, heap]));
    this.views = new Map();
    this.common = false;
    this.rows = [];
    this.draw = framed(() => this.paint());
    this.listen();
  }
  get left() { return this.canvas.clientWidth < 520 ? 90 : 150; }
  update(part) { if (part === "event" || part === "moment") this.lay(); else this.draw(); }
  /** A row for each heap, followed by its blocks. */
  lay() {
    const { moment } = this.app;
    const byHeap = Map.groupBy(moment.blocks, (block) => block.heap);
    this.rows = [...byHeap].sort(([a], [b]) => a - b).flatMap(([heap, blocks]) => [{ heap, blocks }, ...blocks.map((block) => ({ block }))]);
    this.largest = moment.blocks.reduce((most, block) => Math.max(most, block.size), 1);
    const tall = this.rows.length * MAP_ROW;
    this.tall = Math.min(420, Math.max(MAP_ROW, tall));
    this.space.style.height = `${Math.max(0, tall - this.tall)}px`;
    this.draw();
  }
  view(block) { return this.views.get(block.block) ?? { from: 0, to: this.common ? this.largest : block.size }; }
  listen() {
    this.scroll.addEventListener("scroll", this.draw);
    this.canvas.addEventListener("wheel", (event) => {
      const hit = event.ctrlKey || event.metaKey ? this.hit(event) : null;
      if (!hit) return;
      event.preventDefault();
      const view = this.view(hit.block);
      const factor = Math.exp(event.deltaY * 0.004);
      this.zoom(hit.block, hit.at - (hit.at - view.from) * factor, hit.at + (view.to - hit.at) * factor);
    }, { passive: false });
    let held = null;
    pointers(this.canvas, {
      press: (event) => { held = this.hit(event); },
      drag: (dx) => {
        if (!held) return;
        const view = this.view(held.block);
        const by = (-dx / (this.canvas.clientWidth - this.left)) * (view.to - view.from);
        if (view.from + by >= 0 && view.to + by <= held.block.size) this.zoom(held.block, view.from + by, view.to + by);
      },
      click: (event) => { const span = this.hit(event)?.span; if (span?.allocation !== undefined) this.app.pick(span.allocation); },
    });
    this.canvas.addEventListener("dblclick", (event) => {
      const hit = this.hit(event);
      if (hit?.span) this.zoom(hit.block, hit.span.offset - hit.span.size, hit.span.offset + 2 * hit.span.size);
    });
    this.canvas.addEventListener("pointermove", (event) => this.explain(event));
    this.canvas.addEventListener("pointerleave", (event) => tip(event, ""));
  }
  reset() { this.views.clear(); this.draw(); }
  zoom(block, from, to) {
    const start = Math.max(0, from);
    const end = Math.min(block.size, Math.max(to, start + 64));
    if (start <= 0 && end >= block.size) this.views.delete(block.block);
    else this.views.set(block.block, { from: start, to: end });
    this.draw();
  }
  /** The block, byte and span under the pointer. */
  hit(event) {
    const [across, down] = within(this.canvas, event);
    const { block } = this.rows[Math.floor((down + this.scroll.scrollTop) / MAP_ROW)] ?? {};
    const x = (across - this.left) / (this.canvas.clientWidth - this.left - 4);
    if (!block || x < 0) return null;
    const view = this.view(block);
    const at = view.from + x * (view.to - view.from);
    if (at > block.size) return null;
    const { spans } = block;
    const index = firstIndex(spans.length, (each) => spans[each].offset + spans[each].size > at);
    return { block, at, span: spans[index]?.offset <= at ? spans[index] : null };
  }
  explain(event) {
    const hit = this.hit(event);
    if (!hit) { tip(event, ""); return; }
    tip(event, hit.span ? this.sayFull(hit.block, hit.span) : this.sayFree(hit.block, hit.at));
  }
  sayFull(block, span) {
    if (span.allocation !== undefined) return this.app.describe(span.allocation, this.app.event).join("\n");
    const state = { live: "", pinned: "\npinned: may not move", pending: "\nfree asked for, not complete" }[span.state];
    return `${this.app.labels.path(span.label) || "no name"}\n${exactBytes(span.size)}\nblock ${block.block}, offset 0x${span.offset.toString(16)}${state}`;
  }
  sayFree(block, at) {
    const inside = (piece) => piece.offset <= at && at < piece.offset + piece.size;
    const gap = (block.unmapped ?? []).find(inside);
    if (gap) return `No memory: ${exactBytes(gap.size)} of addresses\nblock ${block.block}, offset 0x${gap.offset.toString(16)}`;
    const hole = holesOf(block).find(inside);
    if (!hole) return "";
    const what = block.unmapped ? "Free" : "Free addresses; the recording does not say which have memory";
    return `${what}: ${exactBytes(hole.size)}\nblock ${block.block}, offset 0x${hole.offset.toString(16)}`;
  }
  paint() {
    const { context, width } = surface(this.canvas, this.tall);
    const top = this.scroll.scrollTop;
    for (let index = Math.floor(top / MAP_ROW); index < this.rows.length && index * MAP_ROW - top < this.tall; index += 1) {
      const line = this.rows[index];
      if (line.blocks) this.paintHeap(context, line, index * MAP_ROW - top, width);
      else this.paintRow(context, line.block, index * MAP_ROW - top, width);
    }
    this.readout();
  }
  reserved(heap) { return sumOf(this.app.moment.reserved.filter((each) => each.heap === heap), (each) => each.bytes); }
  readout() {
    const { moment, report } = this.app;
    const spans = moment.blocks.flatMap((block) => block.spans);
    const when = moment.time_us ? `At ${instant(moment.time_us)}: ` : "";
    const model = report.placed_by_model ? ` Places and blocks: ${report.placed_by_model} (model), not recorded.` : "";
    this.say.textContent = `${when}${bytes(reservedIn(moment))} reserved in ${counted(moment.blocks.length, "block")}, `
      + `${bytes(sumOf(spans, (span) => span.size))} live in ${counted(spans.length, "allocation")}, largest hole ${bytes(largestHole(moment))}.${model}`;
  }
  paintHeap(context, { heap: id, blocks }, y, width) {
    const heap = this.heaps.get(id);
    context.fillStyle = style("--card");
    context.fillRect(0, y, width, MAP_ROW);
    context.font = `600 ${FONT}`;
    const [name, model] = [heap?.name ?? `heap ${id}`, this.app.report.placed_by_model ? " (model)" : ""];
    const size = heap?.size && width > 520 ? ` of ${bytes(heap.size)}` : "";
    const text = `${name}: ${bytes(this.reserved(id))} reserved${model}${size}, ${counted(blocks.length, "block")}`;
    caption(context, text, 8, y + 17, width - 10, style("--text"));
    context.font = FONT;
  }
  paintRow(context, block, y, width) {
    const { left } = this;
    const size = block.unmapped ? bytes(block.size - sumOf(block.unmapped, (gap) => gap.size)) : "pages";
    const [name, x] = left < 100 ? [`${block.block}: ${size}`, 4] : [`block ${block.block}: ${size}${this.views.has(block.block) ? " +" : ""}`, 16];
    caption(context, name, x, y + 17, left - x, style("--soft"));
    paintBlock(context, this.app, block, { x: left, y: y + 3, width: width - left - 4, height: MAP_ROW - 6 }, this.view(block));
  }
}

/** The largest holes and what is on either side of them. */
function fillHoles(app, table) {
  const holes = app.moment.blocks.filter((block) => block.unmapped).flatMap(holesOf).sort((a, b) => b.size - a.size);
  table.replaceChildren();
  row(table, [["Block", "text"], "Size", ["Before it", "text"], ["After it", "text"]], "th");
  const side = (piece, edge) => {
    if (!piece) return edge;
    return piece.unmapped ? "no memory" : `${app.labels.short(piece.label) || "no name"}, ${bytes(piece.size)}`;
  };
  for (const { block, size, before, after } of holes.slice(0, 10)) {
    row(table, [[`block ${block.block}`, "text"], bytes(size), [side(before, "start of block"), "text"], [side(after, "end of block"), "text"]]);
  }
  if (!holes.length) row(table, [["No byte is free in any block.", "text"]]);
}

/** The choice of a moment: the timeline's, or one of the maps that the report has. */
function momentChooser(app) {
  const own = app.store?.placed ? [["chosen", "chosen on the timeline"]] : [];
  const others = app.report.moments.map(({ title, time_us: time }, index) => [String(index), time ? `${title} (${instant(time)})` : title]);
  return chooser("Moment", "map-moment", [...own, ...others], (value) => app.showMap(value === "chosen" ? null : Number(value)));
}

panel({
  id: "map",
  title: "Memory map",
  offered: (app) => app.store?.placed || app.report.moments.length > 0,
  build(app, body) {
    const [scroll, canvas, space, say] = [make("div", undefined, "map"), make("canvas"), make("div"), make("p", undefined, "readout")];
    const [holes, table, bar] = [make("details"), make("table"), make("div", undefined, "bar")];
    [canvas.id, say.id] = ["map-canvas", "map-readout"];
    scroll.append(canvas, space);
    const map = new MemoryMap(app, { scroll, canvas, space, say });
    const choice = momentChooser(app);
    const rows = [["fill", "each block fills its row"], ["common", "one scale for all blocks"]];
    const scale = chooser("Rows", "map-scale", rows, (value) => { map.common = value === "common"; map.reset(); });
    const hint = make("span", "Ctrl and wheel zooms into a block, drag pans. Stripes have no memory behind them.", "hint");
    bar.append(choice.label, scale.label, button("Zoom out", "", () => map.reset()), hint);
    holes.append(make("summary", "Largest holes"), table);
    // The timeline has the legend where there is one.
    const legend = app.store ? null : new Legend(app);
    if (legend) bar.prepend(colorChooser(app));
    body.append(bar, ...(legend ? [legend.box] : []), scroll, say, holes);
    const follow = () => {
      choice.select.value = app.mapIndex === null ? "chosen" : String(app.mapIndex);
      if (holes.open) fillHoles(app, table);
    };
    holes.addEventListener("toggle", follow);
    follow();
    map.lay();
    return {
      update: (part) => { map.update(part); legend?.update(part); if (part === "event" || part === "moment") follow(); },
      draw: () => { map.draw(); legend?.draw(); },
    };
  },
});
