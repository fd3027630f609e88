// Elements, canvases and pointers.
const $ = (id) => document.getElementById(id);

/** Makes an element. Text is set as text, never as HTML: names come from recorded programs. */
function make(tag, text, className) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (className) element.className = className;
  return element;
}

function button(text, title, act) {
  const made = make("button", text);
  made.type = "button";
  if (title) made.title = title;
  made.addEventListener("click", act);
  return made;
}

/** A labelled choice among `[value, text]` pairs. */
function chooser(text, id, options, act) {
  const [label, select] = [make("label", `${text} `), make("select")];
  select.id = id;
  for (const [value, name] of options) select.append(new Option(name, value));
  select.addEventListener("change", () => act(select.value));
  label.append(select);
  return { label, select };
}

/** Buttons of which one is on. */
function tabs(id, options, act) {
  const box = make("span", undefined, "tabs");
  box.id = id;
  const made = options.map(([value, text]) => {
    const tab = button(text, "", () => { choose(value); act(value); });
    tab.dataset.value = value;
    return tab;
  });
  const choose = (value) => made.forEach((tab) => tab.setAttribute("aria-pressed", String(tab.dataset.value === value)));
  box.append(...made);
  return { box, choose, named: (value, text) => { made.find((tab) => tab.dataset.value === value).textContent = text; } };
}

/** Fits a canvas to its box and the screen's pixels; returns a context in CSS pixels. */
function surface(canvas, height) {
  if (height !== undefined) canvas.style.height = `${height}px`;
  const ratio = pixelRatio();
  const [width, tall] = [canvas.clientWidth, height ?? canvas.clientHeight];
  const [w, h] = [Math.round(width * ratio), Math.round(tall * ratio)];
  if (canvas.width !== w || canvas.height !== h) { canvas.width = w; canvas.height = h; }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, tall);
  context.font = FONT;
  return { context, width, height: tall, ratio };
}
const FONT = "12px system-ui, sans-serif";
// More pixels than this cost time and show nothing new.
const pixelRatio = () => Math.min(2, window.devicePixelRatio || 1);

/** Draws at most once a frame, however often it is asked to. */
function framed(draw) {
  let asked = false;
  return () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => { asked = false; draw(); });
  };
}

/** Shows a box of text beside the pointer; no text hides it. */
function tip(event, text) {
  const box = $("tip");
  box.hidden = !text;
  if (!text) return;
  box.textContent = text;
  const left = Math.min(event.clientX + 14, innerWidth - box.offsetWidth - 8);
  const below = event.clientY + 16 + box.offsetHeight < innerHeight;
  box.style.left = `${Math.max(4, left)}px`;
  box.style.top = `${below ? event.clientY + 16 : Math.max(4, event.clientY - box.offsetHeight - 10)}px`;
}

/** The pointer's place in an element, in CSS pixels. */
function within(element, event) {
  const box = element.getBoundingClientRect();
  return [event.clientX - box.left, event.clientY - box.top];
}

/**
 * Follows pointers over a canvas. Calls `drag(dx, dy, event)` while one is held, `pinch(factor, event)` while two are, and
 * `click(event)` when one was pressed and did not move.
 */
function pointers(canvas, { press, drag, pinch, click }) {
  const held = new Map();
  let moved = 0;
  const apart = () => { const [a, b] = [...held.values()]; return Math.hypot(a.x - b.x, a.y - b.y); };
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    canvas.setPointerCapture(event.pointerId);
    if (held.size === 0) moved = 0;
    held.set(event.pointerId, { x: event.clientX, y: event.clientY });
    press?.(event);
  });
  canvas.addEventListener("pointermove", (event) => {
    const last = held.get(event.pointerId);
    if (!last) return;
    const [dx, dy, before] = [event.clientX - last.x, event.clientY - last.y, held.size === 2 ? apart() : 0];
    [last.x, last.y] = [event.clientX, event.clientY];
    moved += Math.abs(dx) + Math.abs(dy);
    if (held.size === 2) pinch?.(before / Math.max(1, apart()), event);
    else if (moved > 3) drag?.(dx, dy, event);
  });
  const release = (event) => {
    if (!held.delete(event.pointerId)) return;
    if (event.type === "pointerup" && moved <= 3 && held.size === 0) click?.(event);
  };
  canvas.addEventListener("pointerup", release);
  canvas.addEventListener("pointercancel", release);
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

/** Adds a row; a cell is its text or an element, or either and a class. */
function row(table, cells, tag = "td") {
  const line = table.insertRow();
  for (const cell of cells) {
    const [content, className] = Array.isArray(cell) ? cell : [cell];
    const made = make(tag, undefined, className);
    made.append(content ?? "");
    line.append(made);
  }
  return line;
}

/** Text cut to a width, on a coloured patch. */
function caption(context, text, x, y, width, color) {
  const room = Math.floor(width / 6.6);
  if (room < 3) return;
  context.fillStyle = color;
  context.fillText(text.length > room ? `${text.slice(0, room - 1)}…` : text, x, y);
}
