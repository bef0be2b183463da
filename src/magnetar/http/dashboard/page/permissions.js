// Who may do what with a namespace or a topic.

import { ask, get } from "./api.js";
import { h } from "./dom.js";
import { confirm } from "./dialogs.js";
import { button, table } from "./parts.js";

const ACTIONS = ["produce", "consume", "functions", "sources", "sinks", "packages"];

function grant(what, rest, again, role = "", known = []) {
  confirm({
    title: role ? `Change what ${role} may do` : "Grant a permission",
    text: `Permissions on ${what}. Actions that are not chosen are revoked.`,
    act: "Grant",
    fields: [{ name: "role", label: "Role", value: role }, ...ACTIONS.map((each) => ({ name: `may-${each}`, label: each, type: "checkbox", checked: known.includes(each), required: false }))],
    async run(values) {
      const actions = ACTIONS.filter((each) => values[`may-${each}`]);
      if (!actions.length) throw new Error("Choose what the role may do, or revoke its permissions");
      await ask("POST", `${rest}/permissions/${encodeURIComponent(values.role)}`, actions);
      again();
      return `${values.role} may ${actions.join(", ")}`;
    },
  });
}

function revoke(what, rest, again, role) {
  confirm({
    title: `Revoke what ${role} may do`,
    text: `It loses its permissions on ${what}; permissions granted elsewhere, as on the namespace, remain. Its connected clients are disconnected.`,
    act: "Revoke",
    danger: true,
    typed: role,
    async run() {
      await ask("DELETE", `${rest}/permissions/${encodeURIComponent(role)}`);
      again();
      return `The permissions of ${role} on ${what} were revoked`;
    },
  });
}

/**
 * rest: where they are asked for and set; what: whose they are, in words; ofSubscriptions: roles of each, of a namespace;
 * above: what its namespace grants, of a topic.
 */
export async function permissionsOf(rest, what, again, { ofSubscriptions = {}, above = {} }) {
  const [permissions, { authorization }] = await Promise.all([get(`${rest}/permissions`), get("/dashboard/access")]);
  const granted = Object.entries(permissions).sort();
  const isAbove = (role, actions) => role in above && actions.every((each) => above[role].includes(each));
  const row = ([role, actions]) =>
    h(
      "tr",
      { "data-key": role },
      h("td", { class: "name" }, h("code", null, role)),
      h("td", null, actions.join(", ")),
      h(
        "td",
        null,
        isAbove(role, actions)
          ? h("div", { class: "row" }, h("span", { class: "chip calm" }, "by the namespace"))
          : h("div", { class: "row" }, button("Change", () => grant(what, rest, again, role, actions)), button("Revoke", () => revoke(what, rest, again, role), "danger")),
      ),
    );
  const subscriptions = Object.entries(ofSubscriptions);
  const none = authorization ? "No permissions are granted: only superusers and administrators of the tenant have access." : "No permissions are granted.";
  return [
    authorization
      ? h("p", { class: "dim", "data-key": "authorization" }, "Authorization is on: a role may do what is granted here; superusers and administrators of the tenant may do everything.")
      : h("p", { class: "warning", "data-key": "authorization" }, h("strong", null, "Authorization is off"), ": everybody may do everything. Permissions are stored, and take effect with ", h("code", null, "authorizationEnabled=true"), "."),
    granted.length ? table("Permissions", [{ words: "Role" }, { words: "May" }, { words: "" }], granted.map(row)) : h("p", { class: "empty" }, none),
    subscriptions.length ? h("p", { class: "dim" }, `Subscriptions for some roles only: ${subscriptions.map(([name, roles]) => `${name} (${roles.join(", ")})`).join("; ")}`) : null,
    h("div", { class: "row below" }, button("Grant", () => grant(what, rest, again))),
  ];
}
