// The brokers of the cluster, and what each told last of its load.

import { get } from "./api.js";
import { h } from "./dom.js";
import { bytes, count, rate, since } from "./format.js";
import { section, table } from "./parts.js";
import { pageOf } from "./via.js";

const HEADS = [
  { words: "Broker" },
  { words: "CPU", class: "number" },
  { words: "Memory", class: "number wide" },
  { words: "In /s", class: "number" },
  { words: "Out /s", class: "number" },
  { words: "Topics", class: "number" },
  { words: "Bundles", class: "number wide" },
  { words: "Told", class: "number wide" },
];

function addressOf(each) {
  const url = location.protocol === "https:" ? each.urlTls || each.url : each.url || each.urlTls;
  // Apache's own have no such page.
  return each.magnetar && url ? pageOf(url) : null;
}

function nameOf(each) {
  const address = each.here ? null : addressOf(each);
  const name = h("code", null, each.broker);
  return [address ? h("a", { href: address }, name) : name, each.leads ? h("span", { class: "chip calm" }, "leads") : null, each.here ? h("span", { class: "chip calm" }, "this broker") : null];
}

const percent = (value) => `${Math.round(value)} %`;

function row(each) {
  return h(
    "tr",
    { "data-key": each.broker },
    h("td", { class: "name" }, nameOf(each)),
    h("td", { class: "number" }, percent(each.usage.cpu)),
    h("td", { class: "number wide" }, percent(each.usage.memory)),
    h("td", { class: "number" }, rate(each.msgRateIn), h("small", { class: "wide" }, `${bytes(each.msgThroughputIn)}/s`)),
    h("td", { class: "number" }, rate(each.msgRateOut), h("small", { class: "wide" }, `${bytes(each.msgThroughputOut)}/s`)),
    h("td", { class: "number" }, count(each.topics)),
    h("td", { class: "number wide" }, count(each.bundles)),
    h("td", { class: "number wide" }, each.updated ? `${since(each.updated)} ago` : "not yet"),
  );
}

export async function brokersOf() {
  const brokers = await get("/dashboard/load/brokers");
  const [first] = brokers;
  const content = brokers.length === 1 && !first.usage ? h("div", { class: "row" }, nameOf(first)) : table("Brokers of the cluster", HEADS, brokers.sort((one, other) => one.broker.localeCompare(other.broker)).map(row));
  return section("Brokers of the cluster", null, content);
}
