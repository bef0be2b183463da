// What keys do, but while something is typed.

import { h } from "./dom.js";
import { show } from "./dialogs.js";
import { table } from "./parts.js";

const PLACES = { b: "#/", t: "#/topics", n: "#/namespaces", g: "#/groups", s: "#/storage" };
const KEYS = [
  ["/", "search topics"],
  ["↓ ↑ Home End", "move between lines"],
  ["Enter", "open a line"],
  ["[ ]", "previous or next page"],
  ["b t n g s", "broker, topics, namespaces, groups, storage"],
  ["u", "only stuck topics"],
  ["Esc", "close a field or dialog"],
  ["?", "this help"],
];

export function help() {
  show(
    "Keys",
    table("Keys", [{ words: "Key" }, { words: "Action" }], KEYS.map(([key, words]) => h("tr", null, h("td", null, key.split(" ").map((each) => [h("kbd", null, each), " "])), h("td", null, words)))),
    h("p", { class: "dim" }, "Figures cover the last two seconds, curves the last hour. Everything here can also be done with pulsar-admin and ", h("a", { href: "/openapi" }, "over HTTP"), "."),
  );
}

function toLine(key) {
  const lines = [...document.querySelectorAll("main tbody a, main [data-row]")].filter((each, index, all) => all.indexOf(each) === index);
  if (!lines.length) return false;
  const now = lines.indexOf(document.activeElement);
  const to = { ArrowDown: now + 1, ArrowUp: now < 0 ? lines.length - 1 : now - 1, Home: 0, End: lines.length - 1 }[key];
  const chosen = lines[Math.min(lines.length - 1, Math.max(0, to))];
  chosen.focus();
  chosen.scrollIntoView({ block: "nearest" });
  return true;
}

function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return false;
  const { key, target } = event;
  if (target.matches("input, select, textarea")) {
    if (key === "Escape") target.blur();
    if (key === "ArrowDown" && target.type === "search") return toLine(key);
    return false;
  }
  if (key === "/") {
    document.getElementById("words").focus();
    return true;
  }
  if (key === "?") {
    help();
    return true;
  }
  if (["ArrowDown", "ArrowUp", "Home", "End"].includes(key)) return toLine(key);
  if (key === "[" || key === "]") {
    const link = document.querySelector(`[data-page="${key === "[" ? "before" : "next"}"]`);
    if (link) link.click();
    return Boolean(link);
  }
  if (key === "u") {
    location.hash = "#/topics?stuck=true&order=waiting";
    return true;
  }
  if (key in PLACES) {
    location.hash = PLACES[key];
    return true;
  }
  return false;
}

export function listenToKeys() {
  document.addEventListener("keydown", (event) => {
    if (pressed(event)) event.preventDefault();
  });
}
