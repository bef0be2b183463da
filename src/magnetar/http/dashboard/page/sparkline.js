// A line of the last rates, without axes; its words are beside it.

import { drawn } from "./dom.js";
import { duration } from "./format.js";

const LIVE = 60;

/** What was seen since somebody looks: shown until the broker has figures of several windows to tell. */
export class Seen {
  constructor() {
    this.rows = [];
    this.times = [];
  }

  /** values: one for each line of the chart; none: there is nothing to show of this moment. */
  add(...values) {
    this.rows = [...this.rows, values].slice(-LIVE);
    this.times = [...this.times, Date.now()].slice(-LIVE);
  }

  /** What to draw, and what it is in words; histories: one for each line of the chart. */
  or(histories, seconds) {
    const [first = []] = histories;
    const known = first.filter((value) => value > 0).length;
    const ago = (index) => (first.length - 1 - index) * seconds * 1000;
    if (known > 2) return { lines: histories, times: first.map((_, index) => Date.now() - ago(index)), title: `the last ${duration(first.length * seconds)}` };
    const count = Math.max(0, ...this.rows.map((row) => row.length));
    const lines = Array.from({ length: count }, (_, line) => this.rows.map((row) => row[line] ?? null));
    return { lines, times: this.times, title: "since this page was opened" };
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
