// Where the space goes: the disk, the ledger store, and what topics take.

import { get } from "./api.js";
import { h, patch } from "./dom.js";
import { bytes, count, duration } from "./format.js";
import { namespaceLink, topicLink } from "./names.js";
import { figure, pairs, section, table } from "./parts.js";
import { chip } from "./reasons.js";

const MOST = 100;
const HEADS = [
  { words: "Name" },
  { words: "Stored", class: "number" },
  { words: "Backlog", class: "number" },
  { words: "Retained", class: "number wide" },
  { words: "Reclaimable", class: "number wide" },
  { words: "Offloaded", class: "number wide" },
  { words: "In a day", class: "number" },
];

function row(name, link, each) {
  return h(
    "tr",
    { "data-key": name },
    h("td", { class: "name" }, h("a", { href: link, "data-row": true }, name)),
    h("td", { class: "number" }, bytes(each.storedBytes)),
    h("td", { class: "number" }, bytes(each.backlogBytes)),
    h("td", { class: "number wide" }, bytes(each.retainedBytes)),
    h("td", { class: "number wide" }, bytes(each.reclaimableBytes)),
    h("td", { class: "number wide" }, bytes(each.offloadedBytes)),
    h("td", { class: "number" }, bytes(each.forecastBytes)),
  );
}

function disk(told) {
  const used = h("meter", { min: "0", max: "1", value: String(told.usedShare), high: "0.85", low: "0.7", optimum: "0", "aria-label": "Used share of the disk" });
  return [
    h(
      "dl",
      { class: "figures" },
      figure("Disk", `${Math.round(told.usedShare * 100)} %`, `of ${bytes(told.totalBytes)} used`),
      figure("Free", bytes(told.freeBytes)),
      figure("Full in", told.secondsUntilFull === null ? "–" : duration(told.secondsUntilFull), told.secondsUntilFull === null ? "it is not filling up" : "at the present rate"),
      figure("Refused producers", count(told.refusedProducers)),
    ),
    h("p", null, used, told.state === "room" ? null : chip("storage_full", told.state)),
  ];
}

function store(told) {
  return pairs([
    ["Stored", bytes(told.storedBytes)],
    ["Wanted", bytes(told.wantedBytes)],
    ["Reclaimable by compaction", bytes(told.reclaimableBytes)],
    ["Segments", count(told.segments)],
    ["Ledgers", count(told.ledgers)],
  ]);
}

export function storage(main, _parameters, { refused, state }) {
  let closed = false;
  async function load() {
    const told = await get("/admin/v2/magnetar/storage");
    if (closed) return;
    const left = told.topics.length - MOST;
    patch(
      main,
      h("h1", null, "Storage"),
      told.disk ? disk(told.disk) : null,
      told.store && told.store.segments !== undefined ? section("Ledger store", null, store(told.store)) : null,
      section("Namespaces", null, table("Namespaces", HEADS, told.namespaces.map((each) => row(each.namespace, namespaceLink(each.namespace), each)))),
      section(
        "Topics, largest first",
        null,
        table("Topics", HEADS, told.topics.slice(0, MOST).map((each) => row(each.topic.replace("persistent://", ""), topicLink(each.topic), each))),
        left > 0 || told.notLoaded ? h("p", { class: "dim" }, `${count(Math.max(0, left))} smaller topics are not shown, ${count(told.notLoaded)} are not loaded.`) : null,
      ),
    );
    state("still");
  }
  load().catch(refused);
  return () => {
    closed = true;
  };
}
