// Subscriptions of a topic: how each stands, why it is sent nothing, who consumes, and what can be done.

import { clearBacklog, deleteSubscription, resetCursor, skipMessages } from "./acts.js";
import { h } from "./dom.js";
import { count, duration, exact, plural, rate } from "./format.js";
import { button, command, figure, table } from "./parts.js";
import { chip, isCalm } from "./reasons.js";

function consumers(name, each, seconds) {
  const rows = each.consumers.map((one) =>
    h(
      "tr",
      { "data-key": `${one.consumerName} ${one.address}` },
      h("td", { class: "name" }, one.consumerName, h("small", null, (one.address || "").replace("/", ""))),
      h("td", { class: "number" }, rate(one.msgRateOut)),
      h("td", { class: "number" }, count(one.unackedMessages)),
      h("td", { class: "number" }, count(one.availablePermits)),
      h("td", { class: "wide" }, one.clientVersion || ""),
    ),
  );
  const heads = [{ words: "Consumer" }, { words: `Out /s, ${duration(seconds)}`, class: "number" }, { words: "Unacked", class: "number" }, { words: "Permits", class: "number" }, { words: "Client", class: "wide" }];
  return h(
    "details",
    null,
    h("summary", null, plural(each.consumerCount, "consumer")),
    rows.length ? table(`Consumers of ${name}`, heads, rows) : h("p", { class: "empty" }, "No consumer is connected."),
    each.consumerCount > rows.length ? h("p", { class: "dim" }, `${count(each.consumerCount - rows.length)} more are not shown.`) : null,
  );
}

function why(explained) {
  if (!explained) return null;
  if (isCalm(explained.reason)) return h("p", { class: "dim" }, explained.sentence);
  return h(
    "div",
    { class: "why" },
    h("p", null, explained.sentence),
    explained.try ? command("try", explained.try) : null,
    explained.look ? command("look", explained.look) : null,
  );
}

export function subscription(topic, name, each, explained, liveRate, seconds) {
  const backlog = each.msgBacklog ?? 0;
  const stored = each.msgBacklog !== undefined;
  return h(
    "article",
    { class: "subscription", "data-key": `subscription ${name}` },
    h(
      "div",
      { class: "head" },
      h("h3", null, name),
      h("span", { class: "dim" }, each.type && each.type !== "None" ? each.type : "no type yet"),
      explained ? chip(explained.reason) : null,
      explained && explained.seconds !== undefined && !isCalm(explained.reason) ? h("span", { class: "dim" }, `for ${duration(explained.seconds)}`) : null,
    ),
    h(
      "dl",
      { class: "figures small" },
      stored ? figure("Backlog", h("span", { title: exact(backlog) }, count(backlog))) : figure("Dropped /s", rate(each.msgDropRate)),
      figure("Out", rate(liveRate), "msg/s"),
      figure("Unacked", count(each.unackedMessages || 0)),
      each.msgDelayed ? figure("Delayed", count(each.msgDelayed)) : null,
    ),
    why(explained),
    consumers(name, each, seconds),
    h(
      "div",
      { class: "row acts" },
      stored ? button("Skip", () => skipMessages(topic, name, backlog)) : null,
      stored ? button("Reset cursor", () => resetCursor(topic, name)) : null,
      stored ? button("Clear backlog", () => clearBacklog(topic, name, backlog), "danger") : null,
      button("Delete", () => deleteSubscription(topic, name), "danger"),
    ),
  );
}
