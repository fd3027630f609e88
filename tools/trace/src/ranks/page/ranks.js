// One page for all ranks of a job: figures, failures, one band per rank.
const data = JSON.parse($("data").textContent);
const amount = (spread, value) => (spread.is_bytes ? bytes(value) : whole(value));
const BAND_HEIGHT = 14;
/** The rank's number stands left of its band, the clock above all of them. */
const [BAND_LEFT, CLOCK_HEIGHT] = [60, 18];
/** All bands are on one clock, which ends with the longest. */
const LONGEST = Math.max(1, ...data.rows.map((row) => row.duration_us));

/** A rank's number, which leads to its own page where it has one. */
function rankName(rank, text) {
  const page = data.pages[rank];
  if (page === undefined) return text;
  const link = make("a", text);
  link.href = page.split("/").map(encodeURIComponent).join("/");
  link.title = `The page of rank ${rank}`;
  return link;
}

function section(title) {
  const made = make("section");
  made.append(make("h2", title));
  $("main").append(made);
  return made;
}

function table(into, header, rows) {
  const [scroll, made] = [make("div", undefined, "scroll"), make("table")];
  row(made, header, "th");
  rows.forEach((cells) => row(made, cells));
  scroll.append(made);
  into.append(scroll);
}

const list = (ranks, count) => ranks.join(", ") + (count > ranks.length ? `, … (${whole(count)} in all)` : "");

function showFigures() {
  const at = (spread, point) => {
    const cell = make("span", `${amount(spread, point.value)} `);
    cell.append("(", rankName(point.rank, `rank ${point.rank}`), ")");
    return cell;
  };
  const rows = data.spreads.map((spread) =>
    [[spread.name, "text"], at(spread, spread.min), at(spread, spread.median), at(spread, spread.max), amount(spread, spread.total)]);
  const into = section(`${counted(data.ranks, "rank")}`);
  table(into, ["", "smallest", "median", "largest", "sum"], rows);
  if (!data.worst) return;
  const { at: peak, label } = data.worst;
  const most = label ? `, ${bytes(label.bytes)} of it in ${label.label}` : "";
  const worst = make("p", "Worst: ");
  worst.append(rankName(peak.rank, `rank ${peak.rank}`), ` with a peak of ${bytes(peak.value)}${most}.`);
  into.append(worst);
}

function showParting() {
  const into = section("Do all ranks make the same requests?");
  const { parting } = data;
  const text = parting
    ? `They part between requests ${whole(parting.after)} and ${whole(parting.before)}: ${counted(parting.together, "rank")} stay together, ` +
      `apart are ${list(parting.apart, parting.apart_count)}.`
    : "As far as they were recorded, yes.";
  into.append(make("p", text));
}

function showFailures() {
  if (!data.failure_count) return;
  const into = section(`${counted(data.failure_count, "failed request")}`);
  const others = (spread) => (spread ? `${bytes(spread.min.value)} … ${bytes(spread.median.value)} … ${bytes(spread.max.value)}` : "not recorded");
  const rows = data.failures.map((it) => [rankName(it.rank, `rank ${it.rank}`), duration(it.request.time_us), bytes(it.request.requested), bytes(it.missing),
    bytes(it.request.live), others(it.others_live), others(it.others_free)]);
  table(into, ["", "after", "asked for", "missed", "live here", "live in the others", "free in the others"], rows);
  into.append(make("p", "Times count from the start of each rank's recording: clocks of hosts are not compared.", "hint"));
}

function showProblems() {
  const lines = [];
  if (data.missing_count) lines.push(`Missing: ${list(data.missing, data.missing_count)}.`);
  if (data.worlds.length > 1) lines.push(`The world size changed: ${data.worlds.map((it) => `${it.size} (${counted(it.ranks, "rank")})`).join(", ")}.`);
  for (const it of data.doubled) lines.push(`Rank ${it.rank} is in ${it.kept} and in ${it.left_out}, which was left out.`);
  if (data.doubled_count > data.doubled.length) lines.push(`${whole(data.doubled_count)} files were left out because their rank is there twice.`);
  for (const it of data.problems) lines.push(`${it.file}: ${it.why}`);
  if (data.problem_count > data.problems.length) lines.push(`${whole(data.problem_count)} files could not be used.`);
  if (!lines.length) return;
  const into = section("What is missing from this picture");
  lines.forEach((line) => into.append(make("p", line, "line warn")));
}

const level = (row, part) => parseInt(row.band.slice(2 * part, 2 * part + 2), 16);

function describe(row, part) {
  const now = row.band ? `, about ${bytes(level(row, part) / 255 * data.scale)} here` : ", one moment only";
  const label = row.label ? `\nlargest: ${row.label} (${bytes(row.label_bytes)})` : "";
  const reserved = row.peak_reserved === null ? "" : `, reserved ${bytes(row.peak_reserved)}`;
  const failed = row.failures ? `\n${counted(row.failures, "failed request")}` : "";
  return `rank ${row.rank}${row.cut_off ? " (cut off)" : ""}: peak ${bytes(row.peak_live)}${reserved}${now}${label}${failed}\n${row.origin}`;
}

function drawBands(canvas) {
  const { context, width } = surface(canvas, CLOCK_HEIGHT + data.rows.length * BAND_HEIGHT);
  drawClock(context, width);
  const [empty, full, warn] = [style("--free"), style("--accent"), style("--warn")];
  data.rows.forEach((row, index) => {
    const y = CLOCK_HEIGHT + index * BAND_HEIGHT;
    context.fillStyle = row.failures ? warn : style("--soft");
    if (data.pages[row.rank] === undefined) context.fillText(String(row.rank), 0, y + BAND_HEIGHT - 3);
    const parts = row.band.length / 2;
    const each = bandWidth(row, width) / parts;
    for (let part = 0; part < parts; part += 1) {
      context.fillStyle = mix(empty, full, level(row, part) / 255);
      context.fillRect(BAND_LEFT + part * each, y + 1, each + 0.5, BAND_HEIGHT - 2);
    }
  });
}

const bandWidth = (row, width) => Math.max(2, (row.duration_us / LONGEST) * (width - BAND_LEFT));

function drawClock(context, width) {
  const step = niceStep(LONGEST, Math.max(2, width / 120));
  context.strokeStyle = style("--line");
  context.fillStyle = style("--soft");
  for (let time = 0; time <= LONGEST; time += step) {
    const x = BAND_LEFT + (time / LONGEST) * (width - BAND_LEFT);
    const text = timeTick(time, step, LONGEST);
    context.beginPath(); context.moveTo(x, CLOCK_HEIGHT - 5); context.lineTo(x, CLOCK_HEIGHT); context.stroke();
    context.textAlign = x + context.measureText(text).width / 2 > width ? "right" : time === 0 ? "left" : "center";
    context.fillText(text, context.textAlign === "right" ? width : x, CLOCK_HEIGHT - 7);
  }
  context.textAlign = "left";
}

/** The row under the pointer, and the part of its band. */
function bandAt(canvas, event) {
  const [x, y] = within(canvas, event);
  const row = data.rows[Math.floor((y - CLOCK_HEIGHT) / BAND_HEIGHT)];
  const parts = row ? row.band.length / 2 : 0;
  const at = row ? Math.floor(((x - BAND_LEFT) / bandWidth(row, canvas.clientWidth)) * parts) : 0;
  return at < Math.max(1, parts) ? [row, Math.max(0, at)] : [undefined, 0];
}

/** The number left of a band, where it leads to the rank's page. */
function bandLink(row, index) {
  const link = rankName(row.rank, String(row.rank));
  if (typeof link === "string") return [];
  link.style.top = `${CLOCK_HEIGHT + index * BAND_HEIGHT}px`;
  if (row.failures) link.className = "warn";
  return [link];
}

function showBands() {
  const into = section("Live memory over time, one band per rank");
  if (data.rows.length < data.ranks) into.append(make("p", `${whole(data.rows.length)} of ${whole(data.ranks)} ranks are drawn.`, "hint"));
  const scale = `All bands are on one clock, which begins with each rank's own recording. The stronger the colour, the more is live: the strongest is ${bytes(data.scale)}.`;
  into.append(make("p", scale, "hint"));
  const [box, canvas] = [make("div", undefined, "bands"), make("canvas")];
  canvas.id = "bands";
  box.append(canvas, ...data.rows.flatMap(bandLink));
  into.append(box);
  const draw = framed(() => drawBands(canvas));
  canvas.addEventListener("pointermove", (event) => {
    const [row, part] = bandAt(canvas, event);
    tip(event, row ? describe(row, part) : "");
  });
  canvas.addEventListener("pointerleave", (event) => tip(event, ""));
  addEventListener("resize", draw);
  return draw;
}

$("title").textContent = data.title;
$("facts").textContent = `omniheap: ${counted(data.ranks, "rank")}`;
showFigures();
showParting();
showFailures();
showProblems();
const drawAll = showBands();
const redraw = () => {
  forgetTheme();
  $("theme").textContent = isDark() ? "Light" : "Dark";
  drawAll();
};
$("theme").addEventListener("click", () => {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  redraw();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
$("notice").hidden = true;
$("main").hidden = false;
redraw();
document.documentElement.dataset.ready = String(Math.round(performance.now()));
