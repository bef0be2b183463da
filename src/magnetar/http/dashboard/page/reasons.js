// Why a subscription is sent nothing, or producers are refused: a chip for each reason of the broker.

import { h } from "./dom.js";

/** What needs somebody, what passes when others move, and what is as it should be. */
const CALM = new Set(["at_end", "nothing", "reading", "turn", "takeover", "moving", "delayed"]);
const SLOW = new Set(["no_permits", "rate_limit", "publish_rate", "connection_full", "filter", "look_ahead", "in_flight", "open_transaction"]);

export function isCalm(reason) {
  return CALM.has(reason);
}

export function chip(reason, words) {
  const tone = CALM.has(reason) ? "calm" : SLOW.has(reason) ? "slow" : "stuck";
  return h("span", { class: `chip ${tone}` }, words || reason.replaceAll("_", " "));
}
