// The parts that are words and numbers.
function row(table, cells, tag = "td") {
  const line = table.insertRow();
  for (const cell of cells) {
    const [text, className] = Array.isArray(cell) ? cell : [cell];
    line.append(make(tag, text, className));
  }
  return line;
}

function showHead(data) {
  document.title = data.title;
  $("title").textContent = data.title;
  $("facts").textContent = data.facts.map((fact) => `${fact.name}: ${fact.value}`).join(" · ");
  const { figures } = data;
  const ratio = figures.peak_live_bytes > 0 && figures.peak_reserved_bytes > 0
    ? (figures.peak_reserved_bytes / figures.peak_live_bytes).toFixed(3) : "unknown";
  const cards = [
    ["Peak live", bytes(figures.peak_live_bytes)],
    ["Peak reserved", figures.peak_reserved_bytes ? bytes(figures.peak_reserved_bytes) : "unknown"],
    ["Reserved ÷ live", ratio],
    ["Events", whole(figures.events)],
    ["Allocations", whole(figures.allocations)],
    ["Driver calls", whole(figures.driver_calls)],
    ["Requests that failed", whole(figures.oom), figures.oom > 0],
  ];
  // A report of one moment has no duration.
  if (figures.duration_us) cards.push(["Duration", duration(figures.duration_us)]);
  for (const [name, value, warn] of cards) {
    const card = make("div", undefined, warn ? "figure warn" : "figure");
    card.append(make("b", value), make("span", name));
    $("figures").append(card);
  }
}

function showComparison(rows, live) {
  if (!rows.length) return;
  $("comparison-section").hidden = false;
  const table = $("comparison");
  row(table, ["Allocator", "Peak reserved", "Reserved ÷ live", "Above live"], "th");
  for (const each of rows) {
    row(table, [[each.name, "text"], bytes(each.peak_reserved_bytes), each.ratio.toFixed(3), bytes(Math.max(0, each.peak_reserved_bytes - live))]);
  }
}

function showHoles(tree, moment) {
  const holes = [];
  for (const block of moment.blocks) {
    let [end, before] = [0, null];
    for (const span of [...block.spans, null]) {
      const next = span ? span.offset : block.size;
      if (next > end) holes.push({ block, offset: end, size: next - end, before, after: span });
      if (span) { end = Math.max(end, span.offset + span.size); before = span; }
    }
  }
  holes.sort((a, b) => b.size - a.size);
  const table = $("holes");
  table.replaceChildren();
  row(table, [["Block", "text"], "Size", "Offset", ["Before it", "text"], ["After it", "text"]], "th");
  const side = (span, edge) => (span ? `${tree.bySize ? "" : `${tree.short(span.label) || "no name"}, `}${bytes(span.size)}` : edge);
  for (const hole of holes.slice(0, 10)) {
    row(table, [[`block ${hole.block.block}`, "text"], bytes(hole.size), whole(hole.offset),
      [side(hole.before, "start of block"), "text"], [side(hole.after, "end of block"), "text"]]);
  }
  if (!holes.length) row(table, [["No byte is free in any block.", "text"]]);
}

function answer(yes, text) {
  const line = make("p");
  line.append(make("span", yes ? "yes" : "no", yes ? "yes" : "no"), make("span", `: ${text}`));
  return line;
}

function showFailures(data, tree, show) {
  if (!data.out_of_memory.length) return;
  $("oom-section").hidden = false;
  for (const each of data.out_of_memory) {
    const box = make("div", undefined, "case");
    box.append(make("b", `${bytes(each.size)} asked for on stream ${each.stream}${each.time_us ? ` at ${duration(each.time_us)}` : ""}`));
    box.append(make("p", `Then live ${bytes(each.live_bytes)}, reserved ${bytes(each.reserved_bytes)}, free ${bytes(each.free_bytes)}.`));
    if (each.largest_hole) {
      const who = each.blockers.map((blocker) => `${tree.short(blocker.label) || "no name"} (${bytes(blocker.size)})`).join(" and ");
      box.append(make("p", `Largest hole: ${bytes(each.largest_hole.size)} in block ${each.largest_hole.block}${who ? `, blocked by ${who}` : ", a whole block"}.`));
    }
    box.append(answer(each.fits_after_trim, `would fit after a trim of ${bytes(each.trimmable_bytes)} in empty blocks`));
    box.append(answer(each.fits_after_defragment, "would fit after defragmentation, with the free bytes of a heap gathered in one block"));
    if (each.moment !== null) {
      const button = make("button", "Show the map of that moment");
      button.addEventListener("click", () => show(each.moment));
      box.append(button);
    }
    $("oom").append(box);
  }
}

/** All blocks of a moment on one small canvas. */
function miniature(tree, moment) {
  const canvas = make("canvas");
  const paint = () => {
    const blocks = moment.blocks.slice(0, 64);
    const { context, width } = surface(canvas, blocks.length * 18 + 4);
    blocks.forEach((block, index) => {
      context.fillStyle = style("--soft");
      context.fillText(`block ${block.block}`, 2, index * 18 + 13);
      paintBlock(context, tree, block, { x: 80, y: index * 18 + 2, width: width - 84, height: 14 }, { from: 0, to: block.size }, "");
    });
  };
  return { canvas, paint };
}

function showPasses(data, tree) {
  const paints = [];
  if (!data.defragmentation.length) return paints;
  $("defrag-section").hidden = false;
  for (const pass of data.defragmentation) {
    const box = make("div", undefined, "case");
    box.append(make("b", `${pass.title}: ${counted(pass.moves, "move")}, ${bytes(pass.moved_bytes)}`));
    for (const [name, index] of [["Before", pass.before], ["After", pass.after]]) {
      if (index === null) continue;
      const moment = data.moments[index];
      const hole = largestHole(moment);
      box.append(make("p", `${name}: largest hole ${bytes(hole)}, ${counted(moment.blocks.length, "block")}`));
      const { canvas, paint } = miniature(tree, moment);
      box.append(canvas);
      paints.push(paint);
    }
    $("defrag").append(box);
  }
  return paints;
}

function largestHole(moment) {
  let largest = 0;
  for (const block of moment.blocks) {
    let end = 0;
    for (const span of block.spans) { largest = Math.max(largest, span.offset - end); end = Math.max(end, span.offset + span.size); }
    largest = Math.max(largest, block.size - end);
  }
  return largest;
}
