// A chart with axes, units and times, and the value at the pointer or at the place that the arrow keys choose.

import { drawn, h } from "./dom.js";
import { rate } from "./format.js";

const WIDTH = 320;
const HEIGHT = 80;
/** The chosen point of each chart, by place and kind: charts are made anew with each event. */
const chosen = new Map();

const clock = (ms) => new Date(ms).toLocaleTimeString(undefined, { timeStyle: "medium" });

/** The least of 1, 2 and 5 with zeros that is not below a value, so that the axis ends at a plain number. */
function ceiling(value) {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((each) => each * power).find((each) => each >= value * 0.999999);
}

/** The stretches of a line between moments without a value, as points of polylines. */
function stretches(values, x, y) {
  const found = [];
  let going = null;
  values.forEach((value, index) => {
    if (value === null) {
      going = null;
      return;
    }
    const point = `${x(index).toFixed(1)},${y(value).toFixed(1)}`;
    if (going === null) {
      going = [];
      found.push(going);
    }
    going.push(point);
  });
  // A line needs two points, even to be a dot.
  return found.map((points) => (points.length > 1 ? points : [points[0], points[0]]).join(" "));
}

/**
 * lines: values at times in ms since 1970, all in order, null where there is none; names: what the lines are, if
 * there are several; unit: of the values, in words; format: makes words of a value.
 */
export function chart(label, { lines, times }, { unit, kind, names = [""], format = rate }) {
  const key = `${location.hash} ${kind}`;
  const last = times.length - 1;
  const top = ceiling(Math.max(...lines.flat(), 0));
  const x = (index) => (last > 0 ? (index / last) * WIDTH : WIDTH);
  const y = (value) => HEIGHT - (value / top) * HEIGHT;
  const at = Math.min(chosen.get(key) ?? -1, last);
  const value = (index) => lines.map((each, line) => (each[index] === null ? null : `${names[line]} ${format(each[index])}`.trim())).filter(Boolean).join(", ");
  const words = (index) => (index < 0 ? "Point at the chart, or use the arrow keys" : `${value(index) ? `${value(index)} ${unit}` : "nothing"} at ${clock(times[index])}`);

  function choose(target, index) {
    const place = target.closest(".chart");
    if (index < 0) chosen.delete(key);
    else chosen.set(key, index);
    place.querySelector("output").textContent = words(index);
    const mark = place.querySelector(".mark");
    mark.setAttribute("visibility", index < 0 ? "hidden" : "visible");
    for (const end of ["x1", "x2"]) mark.setAttribute(end, x(Math.max(0, index)).toFixed(1));
  }
  const onpointermove = (event) => {
    const { left, width } = event.currentTarget.getBoundingClientRect();
    choose(event.currentTarget, Math.min(last, Math.max(0, Math.round(((event.clientX - left) / width) * last))));
  };
  const onkeydown = (event) => {
    const now = chosen.get(key) ?? last;
    const to = { ArrowLeft: now - 1, ArrowRight: now + 1, Home: 0, End: last, Escape: -1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    // The page's own keys move between lines.
    event.stopPropagation();
    choose(event.currentTarget, event.key === "Escape" ? -1 : Math.min(last, Math.max(0, to)));
  };
  const mark = { class: "mark", x1: x(Math.max(0, at)).toFixed(1), x2: x(Math.max(0, at)).toFixed(1), y1: 0, y2: HEIGHT, visibility: at < 0 ? "hidden" : "visible" };
  return h(
    "figure",
    { class: `chart ${kind}`, "data-key": `chart ${kind}` },
    h("figcaption", null, h("span", null, label, names.length > 1 ? names.map((name, line) => h("span", { class: `legend of${line}` }, name)) : null), h("output", { class: "dim" }, words(at))),
    h("div", { class: "ticks", "aria-hidden": "true" }, h("span", null, `${format(top)} ${unit}`), h("span", null, format(top / 2)), h("span", null, "0")),
    h(
      "div",
      { class: "plot", tabindex: "0", role: "img", "aria-label": `${label}, ${unit}, from ${clock(times[0])} to ${clock(times[last])}; arrow keys read values`, onpointermove, onpointerleave: (event) => choose(event.currentTarget, -1), onkeydown },
      drawn(
        "svg",
        { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" },
        [0, HEIGHT / 2, HEIGHT].map((each) => drawn("line", { class: "grid", x1: 0, x2: WIDTH, y1: each, y2: each })),
        last > 0 && lines.length === 1 ? drawn("polygon", { points: `0,${HEIGHT} ${stretches(lines[0], x, y).join(" ")} ${WIDTH},${HEIGHT}` }) : null,
        lines.map((each, line) => stretches(each, x, y).map((points) => drawn("polyline", { class: `of${line}`, points }))),
        drawn("line", mark),
      ),
    ),
    h("div", { class: "times", "aria-hidden": "true" }, h("span", null, clock(times[0])), h("span", null, clock(times[Math.floor(last / 2)])), h("span", null, clock(times[last]))),
  );
}
