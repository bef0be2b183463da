// Resource groups, whose namespaces share rates: all of them, and that of a namespace.

import { ask, get } from "./api.js";
import { h, patch } from "./dom.js";
import { confirm } from "./dialogs.js";
import { button, section, table } from "./parts.js";
import { bounds, number } from "./policy_table.js";
import { defaultQuota } from "./quotas.js";

const ALL = "/admin/v2/resourcegroups";
const MOST = 100;
const pathOf = (name) => `${ALL}/${encodeURIComponent(name)}`;

function change(name, known, again) {
  const rate = (field, label) => number(field, label, known[field] > 0 ? known[field] : -1);
  confirm({
    title: name ? `Change ${name}` : "Create a resource group",
    text: "Limits per second and broker for all topics of the namespaces in the group together. -1: no limit.",
    act: name ? "Change" : "Create",
    fields: [
      ...(name ? [] : [{ name: "name", label: "Name" }]),
      rate("publishRateInMsgs", "Published messages"),
      rate("publishRateInBytes", "Published bytes"),
      rate("dispatchRateInMsgs", "Sent messages"),
      rate("dispatchRateInBytes", "Sent bytes"),
    ],
    async run({ name: chosen = name, ...rates }) {
      // Whoever creates one does not mean to change another.
      if (!name && (await get(ALL)).includes(chosen)) throw new Error(`${chosen} already exists`);
      await ask("PUT", pathOf(chosen), Object.fromEntries(Object.entries(rates).map(([field, value]) => [field, Number(value)])));
      again();
      return name ? `${chosen} was changed` : `${chosen} was created`;
    },
  });
}

function remove(name, again) {
  confirm({
    title: `Delete ${name}`,
    text: "Only a group without namespaces can be deleted.",
    act: "Delete",
    danger: true,
    typed: name,
    async run() {
      await ask("DELETE", pathOf(name));
      again();
      return `${name} was deleted`;
    },
  });
}

function row([name, rates], again) {
  return h(
    "tr",
    { "data-key": name },
    h("td", { class: "name" }, h("code", null, name)),
    h("td", null, bounds(rates.publishRateInMsgs, rates.publishRateInBytes, 1)),
    h("td", null, bounds(rates.dispatchRateInMsgs, rates.dispatchRateInBytes, 1)),
    h("td", null, h("div", { class: "row" }, button("Change", () => change(name, rates, again)), button("Delete", () => remove(name, again), "danger"))),
  );
}

export function groups(main, _parameters, { refused, state }) {
  let closed = false;
  async function load() {
    const names = await get(ALL);
    const [expected, ...known] = await Promise.all([defaultQuota(again), ...names.slice(0, MOST).map(async (name) => [name, await get(pathOf(name))])]);
    if (closed) return;
    patch(
      main,
      h("h1", null, "Groups and quotas"),
      section(
        "Resource groups",
        button("Create group", () => change("", {}, again), "main"),
        names.length
          ? table("Resource groups", [{ words: "Name" }, { words: "May publish" }, { words: "May be sent" }, { words: "" }], known.map((each) => row(each, again)))
          : h("p", { class: "empty" }, "No groups: only the rates of topics, namespaces and the broker apply."),
        names.length > MOST ? h("p", { class: "dim" }, `${names.length - MOST} more are not shown.`) : null,
        h("p", { class: "dim" }, "A namespace is put into a group on its own page."),
      ),
      section("Resource quotas", null, expected),
    );
    state("still");
  }
  function again() {
    load().catch(refused);
  }
  again();
  return () => {
    closed = true;
  };
}

/** That of a namespace; own: its name, empty where it is in none. */
export async function groupOf(name, rest, own, again) {
  function choose(names) {
    confirm({
      title: `Put ${name} into a group`,
      text: "Its topics share the rates of the group with all other topics of the group.",
      act: "Put",
      fields: [{ name: "group", label: "Resource group", value: own, choices: names.map((each) => [each, each]) }],
      async run({ group }) {
        await ask("POST", `${rest}/resourcegroup/${encodeURIComponent(group)}`);
        again();
        return `${name} is in ${group}`;
      },
    });
  }
  function leave() {
    confirm({
      title: `Remove ${name} from ${own}`,
      text: "The rates of the group no longer apply to its topics.",
      act: "Remove from group",
      async run() {
        await ask("DELETE", `${rest}/resourcegroup`);
        again();
        return `${name} is in no group`;
      },
    });
  }
  const names = await get(ALL);
  return h(
    "p",
    { class: "row" },
    h("span", null, "Resource group: ", own || "none"),
    names.length ? button("Put into a group", () => choose(names)) : h("a", { href: "#/groups" }, "There are no groups yet"),
    own ? button("Remove from group", leave) : null,
  );
}
