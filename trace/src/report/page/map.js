// Blocks as rows, allocations as spans of them, coloured by group.
const ROW = 26;
const LEFT = 150;

/** Draws one block into a row; spans that share a pixel are drawn once. */
function paintBlock(context, tree, block, box, view, find) {
  const { x, y, width, height } = box;
  const scale = width / (view.to - view.from);
  context.fillStyle = style("--free");
  const end = Math.min(block.size, view.to);
  if (end > view.from) context.fillRect(x, y, (end - view.from) * scale, height);
  const spans = block.spans;
  let drawn = -1;
  const first = firstIndex(spans.length, (index) => spans[index].offset + spans[index].size > view.from);
  for (let index = first; index < spans.length && spans[index].offset < view.to; index += 1) {
    const span = spans[index];
    const from = Math.max(0, (span.offset - view.from) * scale);
    const to = Math.min(width, (span.offset + span.size - view.from) * scale);
    if (to <= drawn) continue;
    const left = Math.max(from, drawn);
    const wide = Math.max(to - left, 0.75);
    const faded = find && !tree.path(span.label).toLowerCase().includes(find);
    context.globalAlpha = faded ? 0.2 : 1;
    context.fillStyle = colorOf(tree.group(span.label));
    context.fillRect(x + left, y, Math.max(wide - (wide > 3 ? 1 : 0), 0.5), height);
    if (span.state !== "live") {
      context.fillStyle = style("--hatch");
      context.fillRect(x + left, span.state === "pending" ? y : y + height - 5, wide, 5);
    }
    if (wide > 46) label(context, tree.name(span) || bytes(span.size), x + left + 4, y + height / 2 + 4, wide - 8);
    drawn = left + wide;
  }
  context.globalAlpha = 1;
}

function label(context, text, x, y, width) {
  const room = Math.floor(width / 6.6);
  if (room < 3) return;
  context.fillStyle = isDark() ? "#0c0f13" : "#ffffff";
  context.fillText(text.length > room ? `${text.slice(0, room - 1)}…` : text, x, y);
}

class MemoryMap {
  constructor(tree, heaps) {
    this.tree = tree;
    this.heaps = new Map(heaps.map((heap) => [heap.id, heap]));
    this.canvas = $("map");
    this.scroll = $("map-scroll");
    this.views = new Map();
    this.find = "";
    this.rows = [];
    this.draw = framed(() => this.paint());
    this.listen();
  }
  set(moment) {
    this.moment = moment;
    this.rows = [];
    const byHeap = new Map();
    for (const block of moment.blocks) {
      if (!byHeap.has(block.heap)) byHeap.set(block.heap, []);
      byHeap.get(block.heap).push(block);
    }
    for (const [heap, blocks] of [...byHeap].sort((a, b) => a[0] - b[0])) {
      this.rows.push({ heap, blocks });
      for (const block of blocks) this.rows.push({ block });
    }
    this.largest = Math.max(1, ...moment.blocks.map((block) => block.size));
    const tall = Math.min(420, Math.max(ROW * 2, this.rows.length * ROW + 8));
    this.scroll.style.height = `${tall}px`;
    this.tall = tall - 2;
    $("map-space").style.height = `${Math.max(0, this.rows.length * ROW + 8 - this.tall)}px`;
    this.draw();
  }
  view(block) {
    const whole = $("map-scale").value === "common" ? this.largest : block.size;
    return this.views.get(block.block) ?? { from: 0, to: whole };
  }
  listen() {
    this.scroll.addEventListener("scroll", this.draw);
    this.canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      const hit = this.hit(event);
      if (!hit) return;
      const view = this.view(hit.block);
      const factor = Math.exp(event.deltaY * 0.004);
      this.zoom(hit.block, hit.at - (hit.at - view.from) * factor, hit.at + (view.to - hit.at) * factor);
    }, { passive: false });
    let held = null;
    this.canvas.addEventListener("pointerdown", (event) => { held = this.hit(event); });
    dragging(this.canvas, (dx) => {
      if (!held) return;
      const view = this.view(held.block);
      const by = (-dx / (this.canvas.clientWidth - LEFT)) * (view.to - view.from);
      if (view.from + by >= 0 && view.to + by <= held.block.size) this.zoom(held.block, view.from + by, view.to + by);
    }, () => {});
    this.canvas.addEventListener("dblclick", (event) => {
      const hit = this.hit(event);
      if (hit?.span) this.zoom(hit.block, hit.span.offset - hit.span.size, hit.span.offset + 2 * hit.span.size);
    });
    this.canvas.addEventListener("pointermove", (event) => this.explain(event));
    this.canvas.addEventListener("pointerleave", (event) => tip(event, ""));
    $("map-scale").addEventListener("change", () => { this.views.clear(); this.draw(); });
    $("map-reset").addEventListener("click", () => { this.views.clear(); this.draw(); });
    $("map-find").addEventListener("input", (event) => { this.find = event.target.value.toLowerCase(); this.draw(); });
  }
  zoom(block, from, to) {
    const start = Math.max(0, from);
    const end = Math.min(block.size, Math.max(to, start + 64));
    if (start <= 0 && end >= block.size) this.views.delete(block.block);
    else this.views.set(block.block, { from: start, to: end });
    this.draw();
  }
  /** The block, byte and span under the pointer. */
  hit(event) {
    const box = this.canvas.getBoundingClientRect();
    const row = this.rows[Math.floor((event.clientY - box.top + this.scroll.scrollTop) / ROW)];
    const x = (event.clientX - box.left - LEFT) / (box.width - LEFT);
    if (!row?.block || x < 0) return null;
    const view = this.view(row.block);
    const at = view.from + x * (view.to - view.from);
    const spans = row.block.spans;
    const index = firstIndex(spans.length, (each) => spans[each].offset + spans[each].size > at);
    const inside = index < spans.length && spans[index].offset <= at;
    const before = index > 0 ? spans[index - 1].offset + spans[index - 1].size : 0;
    const after = index < spans.length ? spans[index].offset : row.block.size;
    return { block: row.block, at, span: inside ? spans[index] : null, hole: inside ? null : { offset: before, size: after - before } };
  }
  explain(event) {
    const hit = this.hit(event);
    if (!hit || hit.at > hit.block.size) { tip(event, ""); return; }
    const part = hit.span ?? hit.hole;
    const place = `block ${hit.block.block}, offset ${whole(part.offset)}`;
    if (!hit.span) { tip(event, `Free: ${bytes(part.size)} (${whole(part.size)} B)\n${place}`); return; }
    const path = this.tree.bySize ? "" : `${this.tree.path(part.label) || "no name"}\n`;
    const state = { live: "", pinned: "\npinned: may not move", pending: "\nfree asked for, not complete" }[part.state];
    tip(event, `${path}${bytes(part.size)} (${whole(part.size)} B)\n${place}${state}`);
  }
  paint() {
    const { context, width } = surface(this.canvas, this.tall);
    const top = this.scroll.scrollTop;
    const first = Math.floor(top / ROW);
    for (let index = first; index < this.rows.length && index * ROW - top < this.tall; index += 1) {
      const y = index * ROW - top;
      const row = this.rows[index];
      if (row.blocks) this.paintHeap(context, row, y, width);
      else this.paintRow(context, row.block, y, width);
    }
    const live = this.moment.blocks.reduce((sum, block) => sum + block.spans.reduce((all, span) => all + span.size, 0), 0);
    const held = this.moment.blocks.reduce((sum, block) => sum + block.size, 0);
    $("map-readout").textContent = `${this.moment.time_us ? `At ${duration(this.moment.time_us)}: ` : ""}${counted(this.moment.blocks.length, "block")}, ` +
      `${bytes(held)} reserved, ${bytes(live)} live in ${counted(this.moment.blocks.reduce((sum, block) => sum + block.spans.length, 0), "allocation")}`;
  }
  paintHeap(context, row, y, width) {
    const heap = this.heaps.get(row.heap);
    const held = row.blocks.reduce((sum, block) => sum + block.size, 0);
    const size = heap?.size ? ` of ${bytes(heap.size)}` : "";
    context.fillStyle = style("--card");
    context.fillRect(0, y, width, ROW);
    context.fillStyle = style("--text");
    context.font = "600 12px system-ui, sans-serif";
    context.fillText(`${heap?.name ?? `heap ${row.heap}`}: ${counted(row.blocks.length, "block")}, ${bytes(held)}${size}`, 8, y + 17);
    context.font = "12px system-ui, sans-serif";
  }
  paintRow(context, block, y, width) {
    context.fillStyle = style("--soft");
    const zoomed = this.views.has(block.block) ? " +" : "";
    context.fillText(`block ${block.block} · ${bytes(block.size)}${zoomed}`, 16, y + 17);
    const box = { x: LEFT, y: y + 3, width: width - LEFT - 4, height: ROW - 6 };
    paintBlock(context, this.tree, block, box, this.view(block), this.find);
  }
}
