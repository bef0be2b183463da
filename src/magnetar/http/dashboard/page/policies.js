// Policies of namespaces and topics: what counts, and the common ones to set.

import { ask, get } from "./api.js";
import { h } from "./dom.js";
import { confirm } from "./dialogs.js";
import { bytes, duration } from "./format.js";
import { button, pairs } from "./parts.js";

const minutes = (value) => (value < 0 ? "for ever" : value === 0 ? "0" : duration(value * 60));
const megabytes = (value) => (value < 0 ? "any size" : bytes(value * 1024 * 1024));

function retentionWords(value) {
  if (!value || (!value.retentionTimeInMinutes && !value.retentionSizeInMB)) return "nothing that is acknowledged by all";
  return `${minutes(value.retentionTimeInMinutes)}, ${megabytes(value.retentionSizeInMB)}`;
}

function quotaWords(value) {
  const quota = value && value.destination_storage;
  const size = quota ? (quota.limitSize ?? quota.limit) : -1;
  return size > 0 ? `${bytes(size)}, then ${quota.policy.replaceAll("_", " ")}` : "none";
}

const ttlWords = (value) => (value ? duration(value) : "none");

function setRetention(rest, again) {
  confirm({
    title: "Set retention",
    text: "What all subscriptions have acknowledged is kept so long and so much of it. -1 stands for any.",
    act: "Set",
    fields: [
      { name: "time", label: "Minutes", type: "number", value: "60", min: "-1" },
      { name: "size", label: "Megabytes", type: "number", value: "100", min: "-1" },
    ],
    async run({ time, size }) {
      await ask("POST", `${rest}/retention`, { retentionTimeInMinutes: Number(time), retentionSizeInMB: Number(size) });
      again();
      return "Retention was set";
    },
  });
}

function setTtl(rest, again, inQuery) {
  confirm({
    title: "Set time to live",
    text: "What is not acknowledged after so long counts as acknowledged. 0: never.",
    act: "Set",
    fields: [{ name: "seconds", label: "Seconds", type: "number", value: "3600", min: "0" }],
    async run({ seconds }) {
      if (inQuery) await ask("POST", `${rest}/messageTTL?messageTTL=${Number(seconds)}`);
      else await ask("POST", `${rest}/messageTTL`, Number(seconds));
      again();
      return "Time to live was set";
    },
  });
}

function setQuota(rest, again) {
  confirm({
    title: "Set the backlog quota",
    act: "Set",
    fields: [
      { name: "size", label: "Megabytes", type: "number", value: "1000", min: "1" },
      {
        name: "policy",
        label: "Beyond it",
        choices: [
          ["producer_request_hold", "producers wait"],
          ["producer_exception", "producers are refused"],
          ["consumer_backlog_eviction", "the oldest messages go"],
        ],
      },
    ],
    async run({ size, policy }) {
      await ask("POST", `${rest}/backlogQuota?backlogQuotaType=destination_storage`, { limitSize: Number(size) * 1024 * 1024, policy });
      again();
      return "The backlog quota was set";
    },
  });
}

/** Those of a namespace or topic; of a topic what counts, whoever set it. */
export async function policiesOf(rest, { topic, again }) {
  const applied = topic ? "?applied=true" : "";
  const [retention, ttl, quota] = await Promise.all(["retention", "messageTTL", "backlogQuotaMap"].map((each) => get(`${rest}/${each}${applied}`)));
  return [
    pairs([
      ["Retention", [retentionWords(retention), button("Set", () => setRetention(rest, again))]],
      ["Time to live", [ttlWords(ttl), button("Set", () => setTtl(rest, again, topic))]],
      ["Backlog quota", [quotaWords(quota), button("Set", () => setQuota(rest, again))]],
    ]),
    h("p", { class: "dim" }, topic ? "What counts: the topic's own policies, else its namespace's, else the broker's." : "Topics may have policies of their own."),
  ];
}
