// Colours. The groups' are those of Okabe and Ito and a wine of Tol's, which stay apart for colour-blind people.
const PALETTE = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#882255"];
/** Groups that have a colour of their own; everything else is grey. */
const SHOWN = PALETTE.length;
/** The group of whatever has no colour of its own. */
const REST = SHOWN;

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

const groupColor = (group) => (group < SHOWN ? PALETTE[group] : style("--rest"));

/** Red, green and blue of `#rrggbb`. */
const channels = (color) => [1, 3, 5].map((at) => parseInt(color.slice(at, at + 2), 16));

/** `color` mixed with `other`: 0 is all `color`, 1 all `other`. */
function mix(color, other, share) {
  const [from, to] = [channels(color), channels(other)];
  return `#${from.map((value, at) => Math.round(value + (to[at] - value) * share).toString(16).padStart(2, "0")).join("")}`;
}

/** Black or white, whichever is easier to read on `color`. */
function inkOn(color) {
  const [red, green, blue] = channels(color);
  return 0.299 * red + 0.587 * green + 0.114 * blue > 140 ? "#000000" : "#ffffff";
}

/** A colour as one pixel of an image: alpha, blue, green, red from the top byte down. */
function pixel(color) {
  const [red, green, blue] = channels(color);
  return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}
