// What can be done to topics, subscriptions and namespaces: each asks first, and says what it will do.

import { ask } from "./api.js";
import { confirm } from "./dialogs.js";
import { count } from "./format.js";
import { parseNamespace, parseTopic, topicLink } from "./names.js";

// Twice: so do Pulsar's clients, and brokers decode it twice.
const subscriptionPath = (topic, name) =>
  `${parseTopic(topic).rest}/subscription/${encodeURIComponent(encodeURIComponent(name))}`;

export function createTopic(namespace) {
  confirm({
    title: "Create a topic",
    text: "As in Pulsar, a topic that has neither producers nor subscriptions is deleted after a minute (brokerDeleteInactiveTopicsEnabled), unless a retention time keeps it.",
    act: "Create",
    fields: [
      { name: "namespace", label: "Namespace", value: namespace || "public/default", pattern: "[^\\/]+(\\/[^\\/]+){1,2}" },
      { name: "local", label: "Name", placeholder: "orders" },
      { name: "partitions", label: "Partitions", type: "number", value: "0", min: "0", hint: "0: a topic without partitions" },
    ],
    async run({ namespace: chosen, local, partitions }) {
      const topic = parseTopic(`persistent://${chosen}/${local}`);
      if (Number(partitions)) await ask("PUT", `${topic.rest}/partitions`, Number(partitions));
      else await ask("PUT", topic.rest);
      location.hash = topicLink(topic.full);
      return `${local} was created`;
    },
  });
}

export function deleteTopic(full) {
  const name = parseTopic(full);
  const whole = parseTopic(name.base);
  const partitioned = name.partition >= 0;
  confirm({
    title: partitioned ? "Delete the topic with all its partitions" : "Delete the topic",
    text: `${whole.full} will be deleted with all its messages and subscriptions. This cannot be undone.`,
    act: "Delete",
    danger: true,
    typed: whole.local,
    fields: [
      { name: "force", label: "Connected clients", choices: [["false", "keep the topic if there are any"], ["true", "disconnect them"]] },
    ],
    async run({ force }) {
      await ask("DELETE", `${whole.rest}${partitioned ? "/partitions" : ""}?force=${force}`);
      location.hash = "#/topics";
      return `${whole.local} was deleted`;
    },
  });
}

export function deletePartitioned(full) {
  deleteTopic(`${full}-partition-0`);
}

export function morePartitions(full, number) {
  confirm({
    title: "More partitions",
    text: `The topic has ${number}. Partitions cannot be removed, and messages with a key may go to another partition than before.`,
    act: "Add",
    fields: [{ name: "partitions", label: "Partitions in total", type: "number", value: String(number + 1), min: String(number + 1) }],
    async run({ partitions }) {
      await ask("POST", `${parseTopic(full).rest}/partitions`, Number(partitions));
      return `${parseTopic(full).local} has ${partitions} partitions`;
    },
  });
}

export function unloadTopic(full) {
  confirm({
    title: "Unload the topic",
    text: "The topic is closed and clients reconnect; unacknowledged messages are delivered again.",
    act: "Unload",
    async run() {
      await ask("PUT", `${parseTopic(full).rest}/unload`);
      return "The topic was unloaded";
    },
  });
}

export function createSubscription(full) {
  confirm({
    title: "Create a subscription",
    act: "Create",
    fields: [
      { name: "name", label: "Name" },
      { name: "from", label: "Begins with", choices: [["latest", "new messages only"], ["earliest", "the oldest message"]] },
    ],
    async run({ name, from }) {
      await ask("PUT", subscriptionPath(full, name), from);
      return `${name} was created`;
    },
  });
}

export function skipMessages(full, name, backlog) {
  confirm({
    title: `Skip messages of ${name}`,
    text: `${count(backlog)} wait. Skipped messages count as acknowledged and are not delivered.`,
    act: "Skip",
    fields: [{ name: "number", label: "How many", type: "number", value: "1", min: "1" }],
    async run({ number }) {
      await ask("POST", `${subscriptionPath(full, name)}/skip/${Number(number)}`);
      return `${count(Number(number))} skipped`;
    },
  });
}

export function clearBacklog(full, name, backlog) {
  confirm({
    title: `Clear the backlog of ${name}`,
    text: `All ${count(backlog)} that wait will count as acknowledged and will not be delivered.`,
    act: "Clear",
    danger: true,
    typed: name,
    async run() {
      await ask("POST", `${subscriptionPath(full, name)}/skip_all`);
      return `The backlog of ${name} was cleared`;
    },
  });
}

/** Behind every time that the broker may store: what is published from now on. */
const NEVER_MS = 8640000000000000;
const TARGETS = [
  ["earliest", "the oldest stored message"],
  ["latest", "new messages only"],
  ["position", "a position"],
  ["time", "a time"],
];

function resetTo(path, { to, position, time }) {
  if (to === "position") {
    const [ledgerId, entryId] = position.trim().split(":").map(Number);
    return ask("POST", path, { ledgerId, entryId, partitionIndex: -1, batchIndex: -1 });
  }
  const ms = to === "earliest" ? 0 : to === "latest" ? NEVER_MS : new Date(time).getTime();
  return ask("POST", `${path}/${ms}`);
}

/** inParts: the subscription of a partitioned topic, of which a position would name only one partition. */
export function resetCursor(full, name, inParts = false) {
  confirm({
    title: `Reset the cursor of ${name}`,
    text: "Stored messages from there on are delivered again, messages before it are not delivered any more. Consumers are disconnected and reconnect.",
    act: "Reset",
    fields: [
      { name: "to", label: "To", choices: inParts ? TARGETS.filter(([target]) => target !== "position") : TARGETS },
      { name: "position", label: "Position", placeholder: "LEDGER:ENTRY", pattern: "\\s*\\d+:\\d+\\s*", hint: "The first message to deliver, such as 12:0", when: ["to", "position"] },
      { name: "time", label: "Messages published since", type: "datetime-local", step: "1", when: ["to", "time"] },
    ],
    async run(values) {
      await resetTo(`${subscriptionPath(full, name)}/resetcursor`, values);
      return `The cursor of ${name} was reset`;
    },
  });
}

export function deleteSubscription(full, name) {
  confirm({
    title: "Delete the subscription",
    text: "Messages are no longer kept for this subscription.",
    act: "Delete",
    danger: true,
    typed: name,
    fields: [
      { name: "force", label: "Connected consumers", choices: [["false", "keep the subscription if there are any"], ["true", "disconnect them"]] },
    ],
    async run({ force }) {
      await ask("DELETE", `${subscriptionPath(full, name)}?force=${force}`);
      return `${name} was deleted`;
    },
  });
}

export function createTenant(cluster, done) {
  confirm({
    title: "Create a tenant",
    act: "Create",
    fields: [{ name: "name", label: "Name" }],
    async run({ name }) {
      await ask("PUT", `/admin/v2/tenants/${encodeURIComponent(name)}`, { adminRoles: [], allowedClusters: [cluster] });
      done();
      return `${name} was created`;
    },
  });
}

export function createNamespace(tenant, done) {
  confirm({
    title: `Create a namespace of ${tenant}`,
    act: "Create",
    fields: [{ name: "name", label: "Name" }],
    async run({ name }) {
      await ask("PUT", parseNamespace(`${tenant}/${name}`).rest);
      done();
      return `${tenant}/${name} was created`;
    },
  });
}

export function deleteNamespace(name) {
  confirm({
    title: "Delete the namespace",
    text: "The namespace must be empty: delete its topics first.",
    act: "Delete",
    danger: true,
    typed: name,
    async run() {
      await ask("DELETE", parseNamespace(name).rest);
      location.hash = "#/namespaces";
      return `${name} was deleted`;
    },
  });
}

export function unloadNamespace(name) {
  confirm({
    title: `Unload ${name}`,
    text: "All its topics are closed; clients reconnect to the broker that serves them afterwards.",
    act: "Unload",
    async run() {
      await ask("PUT", `${parseNamespace(name).rest}/unload`);
      return `${name} was unloaded`;
    },
  });
}

export function clearNamespace(name) {
  confirm({
    title: "Clear all backlogs",
    text: `All waiting messages of all subscriptions of all topics of ${name} count as acknowledged and are not delivered.`,
    act: "Clear",
    danger: true,
    typed: name,
    async run() {
      await ask("POST", `${parseNamespace(name).rest}/clearBacklog`);
      return `The backlogs of ${name} were cleared`;
    },
  });
}
