// Policies one by one: where they are, how they read, and what is asked for to set them.

import { bytes, count, duration, plural } from "./format.js";

const MEGABYTE = 1024 * 1024;

const minutes = (value) => (value < 0 ? "forever" : value === 0 ? "0" : duration(value * 60));
const megabytes = (value) => (value < 0 ? "any size" : bytes(value * MEGABYTE));
const then = (policy) => ({ producer_request_hold: "then producers wait", producer_exception: "then producers are refused", consumer_backlog_eviction: "then the oldest messages are dropped" })[policy] || policy;
const truth = (value) => (value ? "yes" : "no");
const listed = (value) => (value && value.length ? value.join(", ") : "none");
const atMost = (value) => (value > 0 ? count(value) : "any number");

/** Messages and bytes in a time; what is 0 or below does not bound. */
export function bounds(messages, size, seconds) {
  const parts = [messages > 0 ? plural(messages, "message") : null, size > 0 ? bytes(size) : null].filter(Boolean);
  return parts.length ? `${parts.join(" and ")} per ${seconds === 1 ? "second" : duration(seconds)}` : "no limit";
}

export const number = (name, label, value, hint) => ({ name, label, type: "number", value: String(value ?? 0), min: "-1", hint });
const beyond = (value) => ({
  name: "policy",
  label: "When exceeded",
  value,
  choices: [
    ["producer_request_hold", "producers wait"],
    ["producer_exception", "producers are refused"],
    ["consumer_backlog_eviction", "the oldest messages are dropped"],
  ],
});

/** A bound that is one number. */
function cap(name, text, paths, fields) {
  return {
    name,
    text,
    counting: fields[1],
    namespace: { path: paths[0], field: fields[0] },
    topic: { path: paths[1], field: fields[1] },
    words: atMost,
    fields: (value) => [{ name: "most", label: "At most", type: "number", value: String(Number(value) || 0), min: "0", hint: "0: any number" }],
    body: ({ most }) => Number(most),
  };
}

function dispatchRate(name, path, namespaceField) {
  return {
    name,
    text: "Messages and bytes sent to consumers per period. -1: no limit.",
    counting: path,
    namespace: { path, field: namespaceField },
    topic: { path, field: path },
    words: (value) => bounds(value.dispatchThrottlingRateInMsg, value.dispatchThrottlingRateInByte, value.ratePeriodInSecond),
    fields: (value) => [
      number("messages", "Messages", value.dispatchThrottlingRateInMsg || -1),
      number("size", "Bytes", value.dispatchThrottlingRateInByte || -1),
      { ...number("period", "Period in seconds", value.ratePeriodInSecond || 1), min: "1" },
    ],
    body: ({ messages, size, period }) => ({
      dispatchThrottlingRateInMsg: Number(messages),
      dispatchThrottlingRateInByte: Number(size),
      relativeToPublishRate: false,
      ratePeriodInSecond: Number(period),
    }),
  };
}

function quota(name, key, words, fields, body) {
  return {
    name,
    key,
    text: "Backlog of the slowest subscription.",
    counting: "backLogQuotaMap",
    namespace: { path: "backlogQuota", field: "backlog_quota_map" },
    topic: { path: "backlogQuota", field: "backLogQuotaMap" },
    words,
    fields,
    body,
  };
}

/** Those that are set here. */
export const COMMON = [
  {
    name: "Retention",
    text: "How long and how much to keep of messages that all subscriptions have acknowledged. -1: no limit.",
    counting: "retentionPolicies",
    namespace: { path: "retention", field: "retention_policies" },
    topic: { path: "retention", field: "retentionPolicies" },
    words: (value) => (value.retentionTimeInMinutes && value.retentionSizeInMB ? `${minutes(value.retentionTimeInMinutes)}, ${megabytes(value.retentionSizeInMB)}` : "no messages acknowledged by all subscriptions"),
    fields: (value) => [number("time", "Minutes", value.retentionTimeInMinutes), number("size", "Megabytes", value.retentionSizeInMB)],
    body: ({ time, size }) => ({ retentionTimeInMinutes: Number(time), retentionSizeInMB: Number(size) }),
  },
  {
    name: "Time to live",
    text: "Messages not acknowledged after this time count as acknowledged. 0: never.",
    counting: "messageTTLInSeconds",
    namespace: { path: "messageTTL", field: "message_ttl_in_seconds" },
    topic: { path: "messageTTL", field: "messageTTLInSeconds", inQuery: true },
    words: (value) => (value ? duration(value) : "none"),
    fields: (value) => [{ name: "seconds", label: "Seconds", type: "number", value: String(Number(value) || 0), min: "0" }],
    body: ({ seconds }) => Number(seconds),
  },
  quota(
    "Backlog quota",
    "destination_storage",
    (value) => (value && value.limitSize >= 0 ? `${bytes(value.limitSize)}, ${then(value.policy)}` : "none"),
    (value) => [{ name: "size", label: "Megabytes", type: "number", value: String(value.limitSize > 0 ? Math.ceil(value.limitSize / MEGABYTE) : 1000), min: "1" }, beyond(value.policy)],
    ({ size, policy }) => ({ limitSize: Number(size) * MEGABYTE, policy }),
  ),
  quota(
    "Backlog age quota",
    "message_age",
    (value) => (value && value.limitTime > 0 ? `${duration(value.limitTime)}, ${then(value.policy)}` : "none"),
    (value) => [{ name: "seconds", label: "Seconds", type: "number", value: String(value.limitTime > 0 ? value.limitTime : 86400), min: "1" }, beyond(value.policy)],
    ({ seconds, policy }) => ({ limitTime: Number(seconds), policy }),
  ),
  {
    name: "Publish rate",
    text: "Messages and bytes that producers of a topic may publish per second. -1: no limit.",
    counting: "publishRate",
    namespace: { path: "publishRate", field: "publishMaxMessageRate" },
    topic: { path: "publishRate", field: "publishRate" },
    words: (value) => bounds(value.publishThrottlingRateInMsg, value.publishThrottlingRateInByte, 1),
    fields: (value) => [number("messages", "Messages", value.publishThrottlingRateInMsg), number("size", "Bytes", value.publishThrottlingRateInByte)],
    body: ({ messages, size }) => ({ publishThrottlingRateInMsg: Number(messages), publishThrottlingRateInByte: Number(size) }),
  },
  dispatchRate("Dispatch rate", "dispatchRate", "topicDispatchRate"),
  dispatchRate("Dispatch rate of a subscription", "subscriptionDispatchRate", "subscriptionDispatchRate"),
  cap("Producers", "Connected to the topic.", ["maxProducersPerTopic", "maxProducers"], ["max_producers_per_topic", "maxProducerPerTopic"]),
  cap("Consumers", "Connected to the topic.", ["maxConsumersPerTopic", "maxConsumers"], ["max_consumers_per_topic", "maxConsumerPerTopic"]),
  cap("Consumers of a subscription", "Connected to the subscription.", ["maxConsumersPerSubscription", "maxConsumersPerSubscription"], ["max_consumers_per_subscription", "maxConsumersPerSubscription"]),
  cap("Subscriptions", "Of the topic.", ["maxSubscriptionsPerTopic", "maxSubscriptionsPerTopic"], ["max_subscriptions_per_topic", "maxSubscriptionsPerTopic"]),
  cap("Unacknowledged messages of a consumer", "Maximum number of unacknowledged messages.", ["maxUnackedMessagesPerConsumer", "maxUnackedMessagesOnConsumer"], ["max_unacked_messages_per_consumer", "maxUnackedMessagesOnConsumer"]),
  cap("Unacknowledged messages of a subscription", "Maximum number of unacknowledged messages of its consumers.", ["maxUnackedMessagesPerSubscription", "maxUnackedMessagesOnSubscription"], ["max_unacked_messages_per_subscription", "maxUnackedMessagesOnSubscription"]),
];

const shown = (name, counting, namespace, words, topic = counting) => ({ name, counting, namespace: { field: namespace }, topic: topic && { field: topic }, words });
const ofNamespaces = (name, field, words) => shown(name, field, field, words, null);
/** The record of every namespace has it, so that it does not tell whether somebody set it. */
const always = (policy) => ({ ...policy, namespace: { field: "" } });

/** Those that are only told. */
export const OTHERS = [
  shown("Message size", "maxMessageSize", "", (value) => (value ? bytes(value) : "the limit of the broker")),
  shown("Subscribe rate", "subscribeRate", "clusterSubscribeRate", (value) => (value.subscribeThrottlingRatePerConsumer > 0 ? `${count(value.subscribeThrottlingRatePerConsumer)} per consumer and ${duration(value.ratePeriodInSecond)}` : "no limit")),
  shown("Deduplication", "deduplicationEnabled", "deduplicationEnabled", truth),
  shown("Its snapshots", "deduplicationSnapshotIntervalSeconds", "deduplicationSnapshotIntervalSeconds", (value) => (value ? `every ${duration(value)}` : "when a topic is closed")),
  shown("Delayed delivery", "delayedDelivery", "delayed_delivery_policies", (value) => (value.active ? `yes, ${value.maxDeliveryDelayInMillis ? `at most ${duration(value.maxDeliveryDelayInMillis / 1000)}` : "however long"}` : "no"), "delayedDeliveryEnabled"),
  shown("Inactive topics", "inactiveTopicPolicies", "inactive_topic_policies", (value) => (value.deleteWhileInactive ? `deleted after ${duration(value.maxInactiveDurationSeconds)}, ${value.inactiveTopicDeleteMode.replaceAll("_", " ")}` : "kept")),
  shown("Compaction", "compactionThreshold", "compaction_threshold", (value) => (value > 0 ? `beyond ${bytes(value)}` : "not automatically")),
  shown("Copies of entries", "persistence", "persistence", (value) => `${value.bookkeeperWriteQuorum} on ${value.bookkeeperEnsemble} bookies, ${value.bookkeeperAckQuorum} for a receipt`),
  always(shown("Schema compatibility", "schemaCompatibilityStrategy", "", (value) => value.toLowerCase().replaceAll("_", " "))),
  always(shown("Producers need a schema", "schemaValidationEnforced", "", truth)),
  always(ofNamespaces("Producers may add schemas", "is_allow_auto_update_schema", truth)),
  shown("Subscription types", "subscriptionTypesEnabled", "subscription_types_enabled", listed),
  shown("Create subscriptions on use", "autoSubscriptionCreationOverride", "autoSubscriptionCreationOverride", (value) => truth(value.allowAutoSubscriptionCreation)),
  ofNamespaces("Unused subscriptions", "subscription_expiration_time_minutes", (value) => (value ? `deleted after ${minutes(value)}` : "kept")),
  shown("Entry filters", "entryFilters", "entryFilters", (value) => value.entryFilterNames || "none"),
  shown("Pause dispatch while acknowledgements cannot be persisted", "dispatcherPauseOnAckStatePersistentEnabled", "dispatcherPauseOnAckStatePersistentEnabled", truth),
  always(shown("Clusters", "replicationClusters", "", listed)),
  ofNamespaces("Topics", "max_topics_per_namespace", atMost),
  always(ofNamespaces("Encryption", "encryption_required", (value) => (value ? "required" : "not required"))),
];
