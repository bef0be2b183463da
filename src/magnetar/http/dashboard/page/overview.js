// The broker: how much goes through it, and what is stuck.

import { brokersOf } from "./brokers.js";
import { chart } from "./chart.js";
import { h, patch } from "./dom.js";
import { watch } from "./events.js";
import { bytes, count, milliseconds, plural, rate, since } from "./format.js";
import { parseTopic, topicLink } from "./names.js";
import { figure, latency, pairs, section, table } from "./parts.js";
import { chip } from "./reasons.js";
import { Seen } from "./sparkline.js";

/** After so long brokers may have told something else of their load. */
const BROKERS_MS = 15000;

function stuckRow(each) {
  const waits = each.waiting;
  const name = parseTopic(each.topic);
  return h(
    "tr",
    { "data-key": each.topic },
    h("td", { class: "name" }, h("a", { href: topicLink(each.topic) }, waits.subscription), waits.subscriptions > 1 ? ` and ${waits.subscriptions - 1} more` : null, h("small", null, `${name.local} in ${name.namespace}`)),
    h("td", null, chip(waits.reason)),
    h("td", { class: "number" }, since(waits.since)),
    h("td", { class: "number" }, count(waits.backlog)),
  );
}

function traffic(kind, words, now, throughput, shown) {
  return h(
    "div",
    { class: "panel" },
    h("div", { class: "figure" }, h("dt", null, words), h("dd", null, rate(now), h("small", null, `msg/s · ${bytes(throughput)}/s`))),
    chart(`${words}, ${shown.title}`, shown, { unit: "msg/s", kind }),
  );
}

function latencyNow([middle, high]) {
  const none = middle === undefined;
  return figure("Publish latency", none ? "–" : milliseconds(middle), none ? "nothing was published just now" : `ms p50 · ${milliseconds(high)} ms p99`);
}

function shown(told, brokers, seen) {
  const { totals, history, stuck } = told;
  return [
    h("h1", null, told.cluster, h("small", null, `Magnetar ${told.version} · up ${since(told.started)}`)),
    h(
      "dl",
      { class: "figures" },
      figure("Topics", count(totals.topics), totals.notLoaded ? `${count(totals.notLoaded)} not loaded` : "loaded"),
      figure("Subscriptions", count(totals.subscriptions), `${plural(totals.consumers, "consumer")}`),
      figure("Producers", count(totals.producers)),
      figure("Connections", count(totals.connections)),
      figure("Backlog", count(totals.backlog), totals.backlog === 1 ? "entry waits" : "entries wait"),
      figure("Stuck", count(totals.waiting), totals.waiting === 1 ? "subscription" : "subscriptions"),
    ),
    h("div", { class: "panels" }, traffic("in", "In", totals.rateIn, totals.throughputIn, seen.in.or([history.in], history.seconds)), traffic("out", "Out", totals.rateOut, totals.throughputOut, seen.out.or([history.out], history.seconds)), latency(seen.latency.or(history.latency, history.seconds), latencyNow(totals.latency))),
    section(
      "Why nothing arrives",
      stuck.total > stuck.topics.length ? h("a", { href: "#/topics?stuck=true&order=waiting" }, `All ${count(stuck.total)}`) : null,
      stuck.topics.length
        ? table(
            "Subscriptions that wait",
            [{ words: "Subscription" }, { words: "Reason" }, { words: "For", class: "number" }, { words: "Backlog", class: "number" }],
            stuck.topics.map(stuckRow),
          )
        : h("p", { class: "empty" }, "No subscription waits: every subscription with a backlog is being served."),
    ),
    brokers,
  ];
}

export function overview(main, { refused, state }) {
  let brokers = null;
  let asked = -Infinity;
  let latest = null;
  const seen = { in: new Seen(), out: new Seen(), latency: new Seen() };
  const draw = () => latest && patch(main, shown(latest, brokers, seen));
  return watch("/dashboard/events/broker", {
    show(told) {
      latest = told;
      seen.in.add(told.totals.rateIn);
      seen.out.add(told.totals.rateOut);
      seen.latency.add(...told.totals.latency);
      draw();
      if (performance.now() - asked >= BROKERS_MS) {
        asked = performance.now();
        brokersOf().catch(() => section("Brokers of the cluster", null, pairs([["this broker", told.serviceUrl]]))).then((made) => {
          brokers = made;
          draw();
        });
      }
    },
    refused,
    state,
  });
}
