// Figures with their units, as short as they can be read.

const whole = new Intl.NumberFormat("en-US");
const short = new Intl.NumberFormat("en-US", { notation: "compact", maximumFractionDigits: 1 });

export function count(value) {
  return Math.abs(value) < 100000 ? whole.format(value) : short.format(value);
}

export function exact(value) {
  return whole.format(value);
}

function rounded(value) {
  if (value >= 100) return Math.round(value).toString();
  return value.toFixed(value >= 10 ? 1 : 2).replace(/\.?0+$/, "");
}

export function rate(value) {
  if (!value || value < 0.005) return "0";
  return value >= 1000 ? short.format(value) : rounded(value);
}

export function milliseconds(value) {
  return value >= 1000 ? count(Math.round(value)) : rate(value);
}

const STEPS = ["B", "kB", "MB", "GB", "TB", "PB"];

export function bytes(value) {
  let step = 0;
  let left = value || 0;
  while (left >= 1000 && step < STEPS.length - 1) {
    left /= 1000;
    step += 1;
  }
  return `${step ? rounded(left) : Math.round(left)} ${STEPS[step]}`;
}

export function duration(seconds) {
  if (seconds < 10) return `${Math.max(0, seconds).toFixed(1)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} d`;
}

let ahead = 0;

/** Takes the broker's clock for its times, for that of this machine may be another; date: of an answer. */
export function setClock(date) {
  const told = Date.parse(date);
  // The header has whole seconds.
  if (!Number.isNaN(told)) ahead = Math.abs(Date.now() - told) < 2000 ? 0 : Date.now() - told;
}

/** Since a time of the broker in ms, in words. */
export function since(ms) {
  return duration((Date.now() - ahead - ms) / 1000);
}

export function plural(number, one, many) {
  return `${count(number)} ${number === 1 ? one : many || `${one}s`}`;
}
