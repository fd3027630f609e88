// Puts the parts together.
function weights(store, moments, tree) {
  const sums = new Float64Array(tree.text.length);
  if (store) for (let index = 0; index < store.size.length; index += 1) sums[store.label[index]] += store.size[index];
  for (const moment of moments) for (const block of moment.blocks) for (const span of block.spans) sums[span.label] += span.size;
  return sums;
}

function legend(tree, hasBlocks) {
  const box = $("timeline-legend");
  box.replaceChildren();
  const entry = (color, text) => {
    const item = make("span");
    const swatch = make("i");
    swatch.style.background = color;
    item.append(swatch, text);
    box.append(item);
  };
  tree.shown.forEach((group, index) => entry(colorOf(index), tree.short(group)));
  if (tree.rest) entry(colorOf(-1), tree.bySize ? "other sizes" : "other or no name");
  if (hasBlocks) entry(style("--reserved"), "reserved");
}

function sizeLabels(tree, moments) {
  if (!tree.bySize) return;
  for (const moment of moments) for (const block of moment.blocks) for (const span of block.spans) span.label = tree.sizeLabel(span.size);
}

function momentChooser(data, store, show) {
  const select = $("map-moment");
  if (store?.placed) select.append(new Option("of the cursor", "cursor"));
  data.moments.forEach((moment, index) => select.append(new Option(moment.time_us ? `${moment.title} (${duration(moment.time_us)})` : moment.title, index)));
  select.addEventListener("change", () => show(select.value));
  return select;
}

async function start() {
  const begun = performance.now();
  const data = JSON.parse($("data").textContent);
  if (data.schema !== 1) throw new Error(`This page shows reports of schema 1, not ${data.schema}.`);
  showHead(data);
  const store = data.events && data.events.count > 0 ? await decode(data.events) : null;
  const tree = new Tree(data.labels, store);
  sizeLabels(tree, data.moments);
  tree.choose(weights(store, data.moments, tree));
  $("main").hidden = false;
  showComparison(data.comparison, data.figures.peak_live_bytes);
  const redraws = [];
  const hasMap = store?.placed || data.moments.length > 0;
  const flame = new Flame(tree, store);
  $("flame-section").hidden = !store && !hasMap;
  redraws.push(flame.draw);
  let map = null;
  let timeline = null;
  const showMoment = (moment) => {
    if (map) { map.set(moment); showHoles(tree, moment); }
    if (!map || flame.measure === "moment") flame.weigh(moment); else flame.moment = moment;
  };
  const select = momentChooser(data, store, (value) => {
    if (value === "cursor") { showMoment(momentAt(store, timeline.cursor)); return; }
    $("map-moment").value = String(value);
    showMoment(data.moments[value]);
  });
  if (hasMap) {
    $("map-section").hidden = false;
    map = new MemoryMap(tree, data.heaps);
    redraws.push(map.draw);
  }
  if (store) {
    $("timeline-section").hidden = false;
    const pick = framed(() => { select.value = "cursor"; showMoment(momentAt(store, timeline.cursor)); });
    timeline = new Timeline(store, tree, () => { if (store.placed) pick(); });
    timeline.cursor = peak(store);
    timeline.readout(timeline.cursor);
    legend(tree, store.blockSize.length > 0);
    redraws.push(timeline.draw, () => legend(tree, store.blockSize.length > 0));
  }
  if (store?.placed) showMoment(momentAt(store, timeline.cursor));
  else if (data.moments.length) showMoment(data.moments.at(-1)), (select.value = String(data.moments.length - 1));
  flame.measure = $("flame-measure").value;
  flame.weigh();
  showFailures(data, tree, (index) => {
    select.value = String(index);
    showMoment(data.moments[index]);
    $("map-section").scrollIntoView({ behavior: "smooth" });
  });
  redraws.push(...showPasses(data, tree));
  const redraw = () => redraws.forEach((draw) => draw());
  addEventListener("resize", redraw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { forgetTheme(); redraw(); });
  $("theme").addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    forgetTheme();
    redraw();
  });
  redraw();
  $("notice").hidden = true;
  requestAnimationFrame(() => requestAnimationFrame(() => {
    document.documentElement.dataset.ready = String(Math.round(performance.now()));
    document.documentElement.dataset.took = String(Math.round(performance.now() - begun));
  }));
}

/** The event with the most live bytes. */
function peak(store) {
  let most = 0;
  for (let event = 1; event < store.n; event += 1) if (store.live[event] > store.live[most]) most = event;
  return most;
}

start().catch((error) => {
  $("notice").textContent = `This report cannot be shown: ${error.message}. A browser from 2023 or later is needed.`;
  document.documentElement.dataset.ready = "error";
});
