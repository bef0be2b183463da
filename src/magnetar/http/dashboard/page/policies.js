// Policies of namespaces and topics: all that count, and the common ones to set.

import { ask, get } from "./api.js";
import { h } from "./dom.js";
import { confirm } from "./dialogs.js";
import { count } from "./format.js";
import { COMMON, OTHERS } from "./policy_table.js";
import { button, pairs } from "./parts.js";

/** Whether something is set here, and does not only count because it is set above. */
function isOwn(policy, own, side) {
  let value = own[policy[side].field];
  if (value && policy.key) value = value[policy.key];
  if (value === null || value === undefined || value === "") return false;
  return typeof value !== "object" || Object.keys(value).length > 0;
}

const valueOf = (policy, counting) => (policy.key ? (counting[policy.counting] || {})[policy.key] : counting[policy.counting]);

function set(policy, value, place) {
  const { path, inQuery } = policy[place.side];
  const query = policy.key ? `?backlogQuotaType=${policy.key}` : "";
  confirm({
    title: `Set: ${policy.name.toLowerCase()}`,
    text: policy.text,
    act: "Set",
    fields: policy.fields(value ?? {}),
    async run(values) {
      const body = policy.body(values);
      if (inQuery) await ask("POST", `${place.rest}/${path}?${path}=${body}`);
      else await ask("POST", `${place.rest}/${path}${query}`, body);
      place.again();
      return `${policy.name} was set`;
    },
  });
}

function remove(policy, place) {
  const query = policy.key ? `?backlogQuotaType=${policy.key}` : "";
  confirm({
    title: `Remove: ${policy.name.toLowerCase()}`,
    text: place.side === "topic" ? "Then the value of the namespace or the broker applies." : "Then the value of the broker applies.",
    act: "Remove",
    async run() {
      await ask("DELETE", `${place.rest}/${policy[place.side].path}${query}`);
      place.again();
      return `${policy.name} was removed`;
    },
  });
}

function common(policy, told, place) {
  const value = valueOf(policy, told.counting);
  const own = isOwn(policy, told.own, place.side);
  return [
    policy.name,
    [policy.words(value), own ? h("span", { class: "chip calm" }, "set here") : null, button("Set", () => set(policy, value, place)), own ? button("Remove", () => remove(policy, place)) : null],
  ];
}

function other(policy, told, side) {
  const own = policy[side] && isOwn(policy, told.own, side);
  return [policy.name, [policy.words(told.counting[policy.counting]), own ? h("span", { class: "chip calm" }, "set here") : null]];
}

/** Into how many bundles a namespace is divided; of a topic nothing. */
const divided = ({ bundles }) => (bundles ? [["Bundles", count(bundles.numBundles)]] : []);

/**
 * Those of a namespace or topic.
 *
 * place: {side: "namespace" or "topic", policies: where all of them are asked for, rest: where each is set, again: what
 * to do when one was}
 */
export async function policiesOf(place) {
  const told = await get(place.policies);
  const others = OTHERS.filter((each) => place.side === "namespace" || each.topic);
  return [
    pairs([...COMMON.map((each) => common(each, told, place)), ...divided(told.own)]),
    h("details", { "data-key": "other policies" }, h("summary", null, `${others.length} more policies`), pairs(others.map((each) => other(each, told, place.side)))),
    h("p", { class: "dim" }, place.side === "topic" ? "Effective values: of the topic, otherwise of its namespace, otherwise of the broker." : "Values for topics without their own policies."),
  ];
}
