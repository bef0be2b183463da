// A line of the last rates, without axes; its words are beside it.

import { drawn } from "./dom.js";
import { plural } from "./format.js";

const LIVE = 60;

/** What was seen since somebody looks: shown until the broker has rates of several windows to tell. */
export class Seen {
  constructor() {
    this.values = [];
    this.times = [];
  }

  add(value) {
    this.values = [...this.values, value].slice(-LIVE);
    this.times = [...this.times, Date.now()].slice(-LIVE);
  }

  /** What to draw, and what it is in words. */
  or(history, seconds) {
    const known = history.filter((value) => value > 0).length;
    const ago = (index) => (history.length - 1 - index) * seconds * 1000;
    if (known > 2) return { values: history, times: history.map((_, index) => Date.now() - ago(index)), title: `the last ${plural(Math.round((history.length * seconds) / 60), "minute")}` };
    return { values: this.values, times: this.times, title: "since this page was opened" };
  }
}

export function sparkline(values, { width = 84, height = 20, title = "", kind = "in" } = {}) {
  const shown = values.length > 1 ? values : [0, 0];
  const top = Math.max(...shown, 1e-9);
  const step = width / (shown.length - 1);
  const points = shown.map((value, index) => [index * step, height - 1.5 - (value / top) * (height - 3)]);
  const line = points.map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join(" ");
  return drawn(
    "svg",
    {
      class: `spark ${kind}`,
      viewBox: `0 0 ${width} ${height}`,
      preserveAspectRatio: "none",
      role: title ? "img" : null,
      "aria-label": title || null,
      "aria-hidden": title ? null : "true",
    },
    drawn("polygon", { points: `0,${height} ${line} ${width},${height}` }),
    drawn("polyline", { points: line }),
  );
}
