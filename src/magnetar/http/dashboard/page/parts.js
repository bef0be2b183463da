// Pieces that several views have.

import { chart } from "./chart.js";
import { h } from "./dom.js";
import { tell } from "./dialogs.js";
import { milliseconds, plural } from "./format.js";
import { namespaceLink, parseTopic, topicLink } from "./names.js";
import { pageOf } from "./via.js";

export function figure(label, value, more) {
  return h("div", { class: "figure" }, h("dt", null, label), h("dd", null, value, more ? h("small", null, more) : null));
}

/** How long messages take until they are stored; head: what is above the chart. Nothing while none was published. */
export function latency(shown, head = null) {
  if (!shown.lines.length) return null;
  return h("div", { class: "panel", "data-key": "latency" }, head, chart(`Publish latency, ${shown.title}`, shown, { unit: "ms", kind: "latency", names: ["p50", "p99"], format: milliseconds }));
}

/** How far a remote cluster is behind, in words. */
export function lag({ backlog, connected }) {
  return `${plural(backlog, "entry", "entries")} behind${connected ? "" : " · disconnected"}`;
}

export const button = (words, onclick, kind = "quiet") => h("button", { type: "button", class: kind, onclick }, words);

export function section(title, tools, ...content) {
  return h("section", { "data-key": title }, h("div", { class: "head" }, h("h2", null, title), tools ? h("div", { class: "row" }, tools) : null), content);
}

/** Where a topic is: its namespace, and for a partition its topic. */
export function crumbs(name) {
  return h(
    "p",
    { class: "crumbs" },
    h("a", { href: "#/topics" }, "Topics"),
    h("a", { href: namespaceLink(name.namespace) }, name.namespace),
    name.partition >= 0 ? h("a", { href: topicLink(name.base) }, parseTopic(name.base).local) : null,
  );
}

/** Every cell gets the words of its column: narrow screens show them beside it, in place of the heads. */
export function table(label, heads, rows) {
  for (const row of rows) {
    for (const [index, cell] of [...row.children].entries()) {
      const { words } = heads[index] || {};
      if (words && !cell.hasAttribute("colspan")) cell.setAttribute("data-label", words.textContent || words);
    }
  }
  const cells = heads.map((each) => h("th", { scope: "col", class: each.class, "aria-sort": each.sort }, each.words));
  return h("div", { class: "scroll" }, h("table", { "aria-label": label }, h("thead", null, h("tr", null, cells)), h("tbody", null, rows)));
}

/** Label and value of several things, as of policies. */
export function pairs(entries) {
  return h("dl", { class: "pairs" }, entries.map(([name, value]) => h("div", { "data-key": name }, h("dt", null, name), h("dd", null, value))));
}

export function command(kind, text) {
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      tell("Copied");
    } catch {
      tell("This browser does not allow copying", "bad");
    }
  };
  return h("div", { class: "command" }, h("span", null, kind), h("code", null, text), button("Copy", copy));
}

/** A part of a view, or why it is not shown: who may see the rest need not be allowed to see it. */
export const orWhy = (asking) => asking.catch((error) => h("p", { class: "dim" }, error.message));

/** What is in the place of a view that could not be shown; reachable: links to what the role may see. */
export function refusal(error, again, reachable = null) {
  const wants = error.status === 401 || error.status === 403;
  return h(
    "div",
    { class: "refusal" },
    h("h1", null, wants ? "Not allowed" : error.status === 404 ? "Not found" : "The request failed"),
    h("p", null, error.message),
    error.more && error.more.url ? h("p", null, h("a", { href: `${pageOf(error.more.url)}${location.hash}` }, "Open it on that broker")) : null,
    h("div", { class: "row" }, wants ? button("Use a token", again, "main") : null, h("a", { href: "#/" }, "To the broker")),
    reachable ? h("section", null, h("h2", null, "What you may see"), reachable) : null,
  );
}
