// All topics, or those of a namespace: a page of them, ordered and filtered by the broker.

import { createTopic } from "./acts.js";
import { h, patch } from "./dom.js";
import { watch } from "./events.js";
import { bytes, count, duration, exact, rate, since } from "./format.js";
import { parseNamespace, topicLink } from "./names.js";
import { button, lag, table } from "./parts.js";
import { chip } from "./reasons.js";
import { changed } from "./routes.js";
import { sparkline } from "./sparkline.js";

const PAGE = 50;
const ORDERS = [
  ["name", "Topic", ""],
  ["in", "In /s", "number"],
  ["out", "Out /s", "number wide"],
  ["backlog", "Backlog", "number"],
  ["waiting", "Waits", ""],
];

function named(full, namespace) {
  const [domain, rest] = full.split("://");
  const at = rest.indexOf("/", rest.indexOf("/") + 1);
  const local = namespace && rest.startsWith(`${namespace}/`) ? rest.slice(namespace.length + 1) : rest.slice(at + 1);
  return [
    h("a", { href: topicLink(full), "data-row": true }, local),
    namespace ? null : h("small", null, rest.slice(0, rest.length - local.length - 1)),
    domain === "persistent" ? null : h("span", { class: "chip calm" }, "non-persistent"),
  ];
}

function replicated(each) {
  const clusters = each.replication || [];
  return h("td", { class: "wide" }, clusters.map((one) => h("div", { "data-key": one.cluster }, `${one.cluster} `, h("small", null, `${duration(one.lagSeconds)}, ${lag(one)}`))));
}

/** withReplication: a topic of the page is replicated. */
function row(each, namespace, withReplication) {
  if (each.loaded === false) {
    return h("tr", { "data-key": each.topic, class: "dim" }, h("td", { class: "name" }, named(each.topic, namespace)), h("td", { colspan: withReplication ? "7" : "6" }, "not loaded: not in use on this broker"));
  }
  const { waiting } = each;
  return h(
    "tr",
    { "data-key": each.topic },
    h("td", { class: "name" }, named(each.topic, namespace)),
    h("td", { class: "number", title: `${bytes(each.throughputIn)}/s` }, rate(each.rateIn)),
    h("td", { class: "number wide", title: `${bytes(each.throughputOut)}/s` }, rate(each.rateOut)),
    h("td", { class: "number", title: exact(each.backlog) }, count(each.backlog)),
    h("td", null, waiting ? [chip(waiting.reason), h("small", { class: "wide" }, `${waiting.subscription}, ${since(waiting.since)}`)] : null),
    h("td", { class: "wide" }, each.history.some((value) => value > 0) ? sparkline(each.history) : null),
    h("td", { class: "number wide dim", title: "producers, subscriptions, consumers" }, `${each.producers} · ${each.subscriptions} · ${each.consumers}`),
    withReplication ? replicated(each) : null,
  );
}

function pages(told, first) {
  const last = Math.min(first + told.topics.length, told.total);
  return h(
    "div",
    { class: "row pages" },
    h("span", { class: "dim" }, told.total ? `${exact(first + 1)} to ${exact(last)} of ${exact(told.total)}` : "0 topics"),
    first > 0 ? h("a", { href: changed({ first: Math.max(0, first - PAGE) || "" }), "aria-keyshortcuts": "[", "data-page": "before" }, "Before") : null,
    last < told.total ? h("a", { href: changed({ first: first + PAGE }), "aria-keyshortcuts": "]", "data-page": "next" }, "Next") : null,
  );
}

/** Watches topics: draw gets what shows them, whenever it is another; only: words that all of them have. */
export function topicList(draw, namespace, parameters, { refused, state }, only = "") {
  const order = ORDERS.some(([key]) => key === parameters.order) ? parameters.order : "name";
  const first = Number(parameters.first) || 0;
  const stuck = parameters.stuck === "true";
  const asked = new URLSearchParams({ words: `${parameters.words || ""} ${only}`, order, stuck: String(stuck), first: String(first), count: String(PAGE) });
  const path = namespace ? parseNamespace(namespace).events : "/dashboard/events/topics";
  const heads = ORDERS.map(([key, words, kind]) => ({
    class: kind,
    sort: key === order ? (key === "name" ? "ascending" : "descending") : null,
    words: h("a", { href: changed({ order: key === "name" ? "" : key, first: "" }) }, words),
  }));
  heads.push({ class: "wide", words: "Last hour" }, { class: "number wide", words: "Prod · sub · cons" });

  function show(told) {
    const withReplication = told.topics.some((each) => each.replication);
    const shown = withReplication ? [...heads, { class: "wide", words: "Replication" }] : heads;
    draw(
      h(
        "div",
        { class: "row tools-of-list" },
        h("a", { class: "toggle", href: changed({ stuck: stuck ? "" : "true", first: "" }), "aria-current": stuck ? "true" : null }, "Only stuck"),
        parameters.words ? h("a", { class: "toggle", href: changed({ words: "", first: "" }), "aria-current": "true" }, `“${parameters.words}” ×`) : null,
        h("span", { class: "grow" }),
        only ? null : button("Create topic", () => createTopic(namespace), "main"),
      ),
      told.topics.length
        ? table("Topics", shown, told.topics.map((each) => row(each, namespace, withReplication)))
        : h("p", { class: "empty" }, stuck ? "Nothing is stuck: every subscription with a backlog is being served." : "No such topic."),
      pages(told, first),
    );
  }

  return watch(`${path}?${asked}`, { show, refused, state });
}

export function topics(main, parameters, handlers) {
  return topicList((...content) => patch(main, h("h1", null, "Topics"), content), "", parameters, handlers);
}
