// Numbers as people read and write them.
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/** The unit that makes a number of bytes readable: `[divisor, name]`. */
function byteUnit(value) {
  let [divisor, unit] = [1, 0];
  while (Math.abs(value) / divisor >= 1024 && unit < UNITS.length - 1) { divisor *= 1024; unit += 1; }
  return [divisor, UNITS[unit]];
}
function bytes(value) {
  const [divisor, unit] = byteUnit(value);
  const scaled = value / divisor;
  return `${divisor === 1 ? scaled : scaled.toFixed(scaled < 10 ? 2 : scaled < 100 ? 1 : 0)} ${unit}`;
}
const whole = (value) => Math.round(value).toLocaleString("en-US");
const counted = (value, noun) => `${whole(value)} ${noun}${value === 1 ? "" : "s"}`;
const percent = (value) => `${(100 * value).toFixed(1)} %`;
const exactBytes = (value) => (value < 1024 ? bytes(value) : `${bytes(value)} (${whole(value)} B)`);

function duration(us) {
  if (us < 1000) return `${us.toFixed(0)} µs`;
  if (us < 1e6) return `${(us / 1e3).toFixed(2)} ms`;
  if (us < 6e7) return `${(us / 1e6).toFixed(3)} s`;
  const seconds = us / 1e6;
  return `${Math.floor(seconds / 60)} min ${(seconds % 60).toFixed(1)} s`;
}

/** A point in time, to the microsecond: neighbours differ by little. */
function instant(us) {
  if (us < 1000) return `${us} µs`;
  return us < 1e6 ? `${(us / 1e3).toFixed(3)} ms` : `${(us / 1e6).toFixed(6)} s`;
}

/** Round steps for an axis of `span`, about `count` of them. Bytes step by powers of two, everything else by 1, 2, 5. */
function niceStep(span, count, base) {
  const rough = span / count;
  if (base === 2) return 2 ** Math.ceil(Math.log2(Math.max(rough, 1)));
  const power = 10 ** Math.floor(Math.log10(Math.max(rough, 1e-9)));
  return power * [1, 2, 5, 10].find((factor) => power * factor >= rough * (1 - 1e-9));
}

/** Digits after the point that tell two ticks of an axis apart. */
const digits = (step) => Math.max(0, Math.min(6, -Math.floor(Math.log10(step) + 1e-9)));

/** A tick of an axis of bytes whose greatest value is `top`; all ticks have the same unit. */
function byteTick(value, step, top) {
  const [divisor, unit] = byteUnit(top);
  const scaled = step / divisor;
  const places = Number.isInteger(scaled) ? 0 : Math.min(3, Math.ceil(-Math.log2(scaled)));
  return `${(value / divisor).toFixed(places)} ${unit}`;
}

/** A tick of a time axis that ends at `end`. */
function timeTick(us, step, end) {
  const [divisor, unit] = end < 1000 ? [1, "µs"] : end < 1e6 ? [1e3, "ms"] : [1e6, "s"];
  return `${(us / divisor).toFixed(digits(step / divisor))} ${unit}`;
}

const BYTE_SUFFIX = { "": 0, b: 0, k: 1, kib: 1, m: 2, mib: 2, g: 3, gib: 3, t: 4, tib: 4 };
const TIME_SUFFIX = { us: 1, "µs": 1, ms: 1e3, s: 1e6, "": 1e6, min: 6e7 };

/** Splits `64.5M` into its number and what the suffix stands for; `null` when it is neither. */
function quantity(text, suffixes) {
  const [, number, suffix] = /^([0-9]*\.?[0-9]+)([a-zµ]*)$/i.exec(text) ?? [];
  const unit = suffixes[suffix?.toLowerCase()];
  return unit === undefined ? null : { number: Number(number), unit };
}
function parseBytes(text) {
  const found = quantity(text, BYTE_SUFFIX);
  return found && found.number * 1024 ** found.unit;
}
function parseDuration(text) {
  const found = quantity(text, TIME_SUFFIX);
  return found && found.number * found.unit;
}
