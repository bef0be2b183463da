// A partitioned topic: totals of its partitions, its subscriptions over all of them, and the list of partitions.

import { clearBacklog, createSubscription, deletePartitioned, deleteSubscription, morePartitions, resetCursor, unloadTopic } from "./acts.js";
import { get } from "./api.js";
import { h, patch } from "./dom.js";
import { whenRefreshed } from "./events.js";
import { bytes, count, exact, plural, rate } from "./format.js";
import { sendMessage } from "./messages.js";
import { parseNamespace } from "./names.js";
import { button, crumbs, figure, orWhy, section, table } from "./parts.js";
import { permissionsOf } from "./permissions.js";
import { policiesOf } from "./policies.js";
import { schemasOf } from "./schemas.js";
import { topicList } from "./topics.js";

/** Each look asks the brokers of all partitions. */
const LOOK_MS = 5000;
const MOST = 50;
const HEADS = [
  { words: "Subscription" },
  { words: "Backlog", class: "number" },
  { words: "Out /s", class: "number" },
  { words: "Unacked", class: "number" },
  { words: "Consumers", class: "number" },
  { words: "" },
];

function subscriptionRow(full, stored, name, each) {
  const backlog = each.msgBacklog || 0;
  return h(
    "tr",
    { "data-key": `subscription ${name}` },
    h("td", { class: "name" }, name, h("small", null, each.type && each.type !== "None" ? each.type : "")),
    h("td", { class: "number", title: exact(backlog) }, count(backlog)),
    h("td", { class: "number" }, rate(each.msgRateOut)),
    h("td", { class: "number" }, count(each.unackedMessages || 0)),
    h("td", { class: "number" }, count(each.consumers.length)),
    h(
      "td",
      null,
      h(
        "div",
        { class: "row" },
        stored ? button("Reset cursor", () => resetCursor(full, name, true)) : null,
        stored ? button("Clear backlog", () => clearBacklog(full, name, backlog), "danger") : null,
        button("Delete", () => deleteSubscription(full, name), "danger"),
      ),
    ),
  );
}

function totals(full, stored, stats) {
  const subscriptions = Object.entries(stats.subscriptions).sort();
  const backlog = subscriptions.reduce((sum, [, each]) => sum + (each.msgBacklog || 0), 0);
  return [
    h(
      "dl",
      { class: "figures" },
      figure("In", rate(stats.msgRateIn), `msg/s · ${bytes(stats.bytesInCounter)} in total`),
      figure("Out", rate(stats.msgRateOut), `msg/s · ${bytes(stats.bytesOutCounter)} in total`),
      stored ? figure("Stored", bytes(stats.storageSize), `${bytes(stats.backlogSize)} backlog`) : null,
      stored ? figure("Backlog", count(backlog), "messages of all subscriptions") : null,
      figure("Producers", count(stats.publishers.length)),
    ),
    section(
      plural(subscriptions.length, "subscription"),
      null,
      subscriptions.length ? table("Subscriptions over all partitions", HEADS, subscriptions.slice(0, MOST).map(([name, each]) => subscriptionRow(full, stored, name, each))) : h("p", { class: "empty" }, "No subscriptions."),
      subscriptions.length > MOST ? h("p", { class: "dim" }, `${count(subscriptions.length - MOST)} more are not shown.`) : null,
    ),
  ];
}

/** Shows a topic with so many partitions; returns how to show another number of them, and how to stop. */
export function partitioned(main, name, number, parameters, handlers) {
  const { full } = name;
  const stored = name.domain === "persistent";
  let list = null;
  let sums = null;
  let more = null;
  let timer = 0;
  let closed = false;

  function draw() {
    if (closed) return;
    patch(
      main,
      crumbs(name),
      h("h1", null, name.local, h("small", null, plural(number, "partition"))),
      h(
        "div",
        { class: "row acts" },
        button("Create subscription", () => createSubscription(full)),
        name.publish ? button("Send a test message", () => sendMessage(full)) : null,
        button("More partitions", () => morePartitions(full, number)),
        button("Unload", () => unloadTopic(full)),
        button("Delete", () => deletePartitioned(full), "danger"),
      ),
      sums,
      section("Partitions", null, list),
      more,
    );
  }

  async function look() {
    clearTimeout(timer);
    sums = await orWhy(get(`${name.rest}/partitioned-stats?perPartition=false`).then((stats) => totals(full, stored, stats)));
    draw();
    clearTimeout(timer);
    if (!closed) timer = setTimeout(look, LOOK_MS);
  }

  async function load() {
    const again = () => load().then(draw);
    const [schemas, policies, granted] = await Promise.all([
      orWhy(schemasOf(name)),
      stored && !name.older ? orWhy(policiesOf({ side: "topic", policies: name.policies, rest: name.rest, again })) : null,
      orWhy(get(`${parseNamespace(name.namespace).rest}/permissions`).then((above) => permissionsOf(name.rest, name.local, again, { above }))),
    ]);
    more = [section("Schema", null, schemas), policies ? section("Policies", null, policies) : null, section("Permissions", null, granted)];
  }

  look();
  load().then(draw);
  const stopRefreshing = whenRefreshed(look);
  const close = topicList(
    (...content) => {
      list = content;
      draw();
    },
    name.namespace,
    parameters,
    handlers,
    `${full}-partition-`,
  );
  return {
    become(now) {
      if (now === number) return;
      number = now;
      look();
    },
    close() {
      closed = true;
      clearTimeout(timer);
      stopRefreshing();
      close();
    },
  };
}
