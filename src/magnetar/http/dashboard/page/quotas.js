// What load balancing expects of bundles: of all, and of single ones of a namespace.

import { ask, get } from "./api.js";
import { h } from "./dom.js";
import { confirm } from "./dialogs.js";
import { bytes, count } from "./format.js";
import { parseNamespace } from "./names.js";
import { button, pairs, table } from "./parts.js";

const ALL = "/admin/v2/resource-quotas";
const MEGABYTE = 1024 * 1024;
const MOST = 32;
const FIELDS = [
  ["msgRateIn", "Published messages per second"],
  ["msgRateOut", "Sent messages per second"],
  ["bandwidthIn", "Published bytes per second"],
  ["bandwidthOut", "Sent bytes per second"],
  ["memory", "Memory in MiB"],
];
const same = (one, other) => FIELDS.every(([name]) => one[name] === other[name]);

function change(title, quota, path, again) {
  confirm({
    title,
    text: "Expected load of a bundle while its real load is unknown. It does not limit anything.",
    act: "Set",
    fields: FIELDS.map(([name, label]) => ({ name, label, type: "number", value: String(quota[name]), min: "0", step: "any" })),
    async run(values) {
      const given = Object.fromEntries(FIELDS.map(([name]) => [name, Number(values[name])]));
      await ask("POST", path, { ...given, dynamic: quota.dynamic });
      again();
      return "The quota was set";
    },
  });
}

function reset(range, path, again) {
  confirm({
    title: `Reset the quota of ${range}`,
    text: "Then the default quota applies.",
    act: "Reset to default",
    async run() {
      await ask("DELETE", path);
      again();
      return `The default quota applies to ${range}`;
    },
  });
}

/** What is expected of bundles that nothing is said of. */
export async function defaultQuota(again) {
  const quota = await get(ALL);
  return [
    pairs([
      ["Published", `${count(quota.msgRateIn)} messages, ${bytes(quota.bandwidthIn)} per second`],
      ["Sent", `${count(quota.msgRateOut)} messages, ${bytes(quota.bandwidthOut)} per second`],
      ["Memory", bytes(quota.memory * MEGABYTE)],
    ]),
    h("p", { class: "dim" }, "Expected load of a bundle while its real load is unknown. It does not limit anything."),
    h("div", { class: "row below" }, button("Set quota", () => change("Default quota of bundles", quota, ALL, again))),
  ];
}

/** What is expected of the bundles of a namespace. */
export async function quotasOf(name, again) {
  const { rest, quotas } = parseNamespace(name);
  const [all, { boundaries }] = await Promise.all([get(ALL), get(`${rest}/bundles`)]);
  const ranges = boundaries.slice(1).map((end, index) => `${boundaries[index]}_${end}`);
  const known = await Promise.all(ranges.slice(0, MOST).map(async (range) => [range, await get(`${quotas}/${range}`)]));
  const rows = known.map(([range, quota]) => {
    const own = !same(quota, all);
    const path = `${quotas}/${range}`;
    return h(
      "tr",
      { "data-key": range },
      h("td", { class: "name" }, h("code", null, range)),
      h("td", { class: "number" }, count(quota.msgRateIn)),
      h("td", { class: "number" }, count(quota.msgRateOut)),
      h("td", null, h("div", { class: "row" }, button("Set", () => change(`Quota of ${range}`, quota, path, again)), own ? button("Reset to default", () => reset(range, path, again)) : null)),
    );
  });
  return [
    table("Resource quotas", [{ words: "Bundle" }, { words: "Published/s", class: "number" }, { words: "Sent/s", class: "number" }, { words: "" }], rows),
    ranges.length > MOST ? h("p", { class: "dim" }, `${ranges.length - MOST} more are not shown.`) : null,
  ];
}
