// Small things that every part uses.
const $ = (id) => document.getElementById(id);

/** Makes an element. Text is set as text, never as HTML: names come from recorded programs. */
function make(tag, text, className) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (className) element.className = className;
  return element;
}

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
function bytes(value) {
  let unit = 0;
  while (value >= 1024 && unit < UNITS.length - 1) { value /= 1024; unit += 1; }
  return `${unit === 0 ? value : value.toFixed(value < 10 ? 2 : value < 100 ? 1 : 0)} ${UNITS[unit]}`;
}
const whole = (value) => Math.round(value).toLocaleString("en-US");
const counted = (value, noun) => `${whole(value)} ${noun}${value === 1 ? "" : "s"}`;
const percent = (value) => `${(100 * value).toFixed(1)} %`;
function duration(us) {
  if (us < 1000) return `${us.toFixed(0)} µs`;
  if (us < 1e6) return `${(us / 1e3).toFixed(2)} ms`;
  if (us < 6e7) return `${(us / 1e6).toFixed(3)} s`;
  const seconds = us / 1e6;
  return `${Math.floor(seconds / 60)} min ${(seconds % 60).toFixed(1)} s`;
}

// Asking the document for a colour is slow, and a picture asks thousands of times: answers are kept until the theme
// changes.
const kept = { styles: new Map(), dark: null };
function forgetTheme() { kept.styles.clear(); kept.dark = null; }
function style(name) {
  if (!kept.styles.has(name)) kept.styles.set(name, getComputedStyle(document.documentElement).getPropertyValue(name).trim());
  return kept.styles.get(name);
}
function isDark() {
  const theme = document.documentElement.dataset.theme;
  kept.dark ??= theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  return kept.dark;
}

// Hues that stay apart for most eyes; lightness follows the theme.
const HUES = [212, 28, 150, 340, 265, 185, 50, 95, 300, 5];
function colorOf(index) {
  if (index < 0) return isDark() ? "#5d6776" : "#a9b1bd";
  const hue = HUES[index % HUES.length];
  const step = Math.floor(index / HUES.length) % 3;
  const light = (isDark() ? 58 : 52) + (step === 1 ? 12 : step === 2 ? -10 : 0);
  return `hsl(${hue} 58% ${light}%)`;
}

/** Fits a canvas to its box and the screen's pixels; returns a context in CSS pixels. */
function surface(canvas, height) {
  const width = canvas.clientWidth;
  const tall = height ?? canvas.clientHeight;
  const ratio = window.devicePixelRatio || 1;
  if (height !== undefined) canvas.style.height = `${height}px`;
  const [w, h] = [Math.round(width * ratio), Math.round(tall * ratio)];
  if (canvas.width !== w || canvas.height !== h) { canvas.width = w; canvas.height = h; }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, tall);
  context.font = "12px system-ui, sans-serif";
  return { context, width, height: tall };
}

/** Draws at most once a frame, however often it is asked to. */
function framed(draw) {
  let asked = false;
  return () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => { asked = false; draw(); });
  };
}

function tip(event, text) {
  const box = $("tip");
  box.hidden = !text;
  if (!text) return;
  box.textContent = text;
  const left = Math.min(event.clientX + 14, innerWidth - box.offsetWidth - 8);
  const below = event.clientY + 16 + box.offsetHeight < innerHeight;
  box.style.left = `${Math.max(4, left)}px`;
  box.style.top = `${below ? event.clientY + 16 : event.clientY - box.offsetHeight - 10}px`;
}

/** The first index in `0..length` for which `after` holds; `length` when none does. */
function firstIndex(length, after) {
  let [low, high] = [0, length];
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (after(middle)) high = middle; else low = middle + 1;
  }
  return low;
}

/** Round steps for an axis: about `count` of them between 0 and `span`. */
function niceStep(span, count, base) {
  const rough = span / count;
  if (base === 2) return 2 ** Math.ceil(Math.log2(Math.max(rough, 1)));
  const power = 10 ** Math.floor(Math.log10(Math.max(rough, 1e-9)));
  return power * [1, 2, 5, 10].find((factor) => power * factor >= rough);
}

/** Calls `move(dx, dy, event)` while a button is held, and `click` when nothing moved. */
function dragging(canvas, move, click) {
  canvas.addEventListener("pointerdown", (down) => {
    if (down.button !== 0) return;
    let [x, y, moved] = [down.clientX, down.clientY, 0];
    canvas.setPointerCapture(down.pointerId);
    const onMove = (event) => {
      moved += Math.abs(event.clientX - x) + Math.abs(event.clientY - y);
      if (moved > 3) move(event.clientX - x, event.clientY - y, event);
      [x, y] = [event.clientX, event.clientY];
    };
    const onUp = (event) => {
      canvas.removeEventListener("pointermove", onMove);
      if (moved <= 3) click(event);
    };
    canvas.addEventListener("pointermove", onMove);
    canvas.addEventListener("pointerup", onUp, { once: true });
    canvas.addEventListener("pointercancel", () => canvas.removeEventListener("pointermove", onMove), { once: true });
  });
}
