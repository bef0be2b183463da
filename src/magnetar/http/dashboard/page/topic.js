// A topic: what goes through it, why nothing does, its subscriptions, schema, policies and ledgers.

import { createSubscription, deleteTopic, unloadTopic } from "./acts.js";
import { get } from "./api.js";
import { chart } from "./chart.js";
import { h, patch } from "./dom.js";
import { watch } from "./events.js";
import { bytes, count, duration, rate } from "./format.js";
import { ledgersOf } from "./ledgers.js";
import { Messages, sendMessage } from "./messages.js";
import { parseNamespace, parseTopic } from "./names.js";
import { partitioned } from "./partitioned.js";
import { button, command, crumbs, figure, lag, latency, orWhy, section, table } from "./parts.js";
import { permissionsOf } from "./permissions.js";
import { policiesOf } from "./policies.js";
import { chip } from "./reasons.js";
import { schemasOf } from "./schemas.js";
import { Seen } from "./sparkline.js";
import { subscription } from "./subscriptions.js";

const LEAST_MS = 500;

/** Rates between events, of counters that only grow. */
class Counted {
  constructor() {
    this.before = new Map();
  }

  /** known: what counts while there is nothing to compare with. */
  rate(name, value, at, known) {
    const before = this.before.get(name);
    if (before && at - before.at < LEAST_MS) return before.rate;
    const rate = before ? Math.max(0, ((value - before.value) * 1000) / (at - before.at)) : known;
    this.before.set(name, { value, at, rate });
    return rate;
  }
}

function producersOf(told) {
  const { stats, explain } = told;
  const side = explain.producers;
  const rows = stats.publishers.map((each) =>
    h(
      "tr",
      { "data-key": String(each.producerId) + each.address },
      h("td", { class: "name" }, each.producerName, h("small", null, (each.address || "").replace("/", ""))),
      h("td", { class: "number" }, rate(each.msgRateIn)),
      h("td", { class: "number" }, bytes(each.averageMsgSize)),
      h("td", { class: "wide" }, each.clientVersion || ""),
    ),
  );
  return section(
    "Producers",
    null,
    h("p", null, chip(side.reason === "nothing" ? "nothing" : side.reason, side.reason === "nothing" ? "nothing prevents publishing" : undefined), " ", side.sentence),
    side.try ? command("try", side.try) : null,
    side.look ? command("look", side.look) : null,
    side.refused.length ? h("p", { class: "dim" }, `Refused since it was loaded: ${side.refused.map((each) => `${each.reason} ${count(each.times)}`).join(", ")}`) : null,
    rows.length
      ? table("Producers", [{ words: "Producer" }, { words: `In /s, ${duration(told.history.seconds)}`, class: "number" }, { words: "Average", class: "number" }, { words: "Client", class: "wide" }], rows)
      : null,
    stats.publisherCount > rows.length ? h("p", { class: "dim" }, `${count(stats.publisherCount - rows.length)} more are not shown.`) : null,
  );
}

export function topic(main, full, parameters, handlers) {
  const { refused, state } = handlers;
  const stored = full.startsWith("persistent:");
  const name = parseTopic(full);
  const counted = new Counted();
  const seen = { in: new Seen(), out: new Seen(), latency: new Seen() };
  const messages = stored && !name.older ? new Messages(name, () => draw()) : null;
  let more = null;
  let latest = null;
  let parts = null;

  function draw() {
    const { stats, explain } = latest;
    const names = Object.keys(stats.subscriptions);
    const ofKind = (kind) => {
      const found = seen[kind].or([latest.history[kind]], latest.history.seconds);
      return found.lines.length ? h("div", { class: "panel" }, chart(`${kind === "in" ? "In" : "Out"}, ${found.title}`, found, { unit: "msg/s", kind })) : null;
    };
    patch(
      main,
      crumbs(name),
      h("h1", null, name.local, name.domain === "persistent" ? null : h("small", null, "non-persistent")),
      h("div", { class: "row acts" }, button("Create subscription", () => createSubscription(full)), name.publish ? button("Send a test message", () => sendMessage(full)) : null, button("Unload", () => unloadTopic(full)), button("Delete", () => deleteTopic(full), "danger")),
      h(
        "dl",
        { class: "figures" },
        figure("In", rate(latest.rateIn), `msg/s · ${bytes(stats.bytesInCounter)} in total`),
        figure("Out", rate(latest.rateOut), `msg/s · ${bytes(stats.bytesOutCounter)} in total`),
        !stored ? null : figure("Stored", bytes(stats.storageSize), `${bytes(stats.backlogSize)} backlog`),
        stats.oldestBacklogMessageAgeSeconds > 0 ? figure("Oldest waits", duration(stats.oldestBacklogMessageAgeSeconds), stats.oldestBacklogMessageSubscriptionName || "") : null,
        stats.ongoingTxnCount > 0 ? figure("Open transactions", count(stats.ongoingTxnCount), "hide messages") : null,
        latest.replication.map((each) => figure(`To ${each.cluster}`, duration(each.lagSeconds), lag(each))),
      ),
      h("div", { class: "panels", "data-key": "charts" }, ["in", "out"].map((kind) => ofKind(kind)), stored ? latency(seen.latency.or(latest.history.latency, latest.history.seconds)) : null),
      section(
        stats.subscriptionCount === 1 ? "1 subscription" : `${count(stats.subscriptionCount)} subscriptions`,
        null,
        names.map((each) => subscription(full, each, stats.subscriptions[each], explain.subscriptions[each], latest.rates[each], latest.history.seconds)),
        names.length ? null : h("p", { class: "empty" }, stored ? "No subscriptions: published messages are kept as long as the retention policy says." : "No subscriptions: published messages are dropped."),
        stats.subscriptionCount > names.length ? h("p", { class: "dim" }, `${count(stats.subscriptionCount - names.length)} more are not shown.`) : null,
      ),
      producersOf(latest),
      messages ? messages.section() : null,
      more,
    );
  }

  async function load() {
    const again = () => load().then(draw);
    const base = parseTopic(name.base);
    // Policies that are shown are of what is stored, and names of the older form have none of their own.
    const withPolicies = stored && !name.older;
    const [schemas, ledgers, policies, granted] = await Promise.all([
      orWhy(schemasOf(name)),
      stored ? orWhy(ledgersOf(name)) : null,
      withPolicies ? orWhy(policiesOf({ side: "topic", policies: base.policies, rest: base.rest, again })) : null,
      orWhy(get(`${parseNamespace(name.namespace).rest}/permissions`).then((above) => permissionsOf(base.rest, base.local, again, { above }))),
    ]);
    more = [
      section("Schema", null, schemas),
      ledgers ? section("Ledgers and cursors", button("Look again", again), ledgers) : null,
      policies ? section("Policies", null, policies) : null,
      section("Permissions", null, granted),
    ];
  }

  const close = watch(name.events, {
    show(told) {
      if (told.partitions) {
        const { partitions } = told.partitions;
        if (parts) parts.become(partitions);
        else parts = partitioned(main, name, partitions, parameters, handlers);
        return;
      }
      const at = performance.now();
      const { stats } = told;
      const rates = Object.fromEntries(Object.entries(stats.subscriptions).map(([each, one]) => [each, counted.rate(`of ${each}`, one.msgOutCounter, at, one.msgRateOut)]));
      const rateIn = counted.rate("in", stats.msgInCounter, at, stats.msgRateIn);
      const rateOut = counted.rate("out", stats.msgOutCounter, at, stats.msgRateOut);
      if (latest && at - latest.at >= LEAST_MS) {
        seen.in.add(rateIn);
        seen.out.add(rateOut);
        seen.latency.add(...told.latency);
      }
      const first = latest === null;
      latest = { ...told, rates, rateIn, rateOut, at };
      draw();
      if (first) load().then(draw);
    },
    refused,
    state,
  });
  return () => {
    close();
    if (parts) parts.close();
  };
}
