// A namespace: its topics, its policies, and what can be done to it.

import { clearNamespace, deleteNamespace, unloadNamespace } from "./acts.js";
import { get } from "./api.js";
import { h, patch } from "./dom.js";
import { parseNamespace } from "./names.js";
import { button, pairs, section } from "./parts.js";
import { policiesOf } from "./policies.js";
import { topicList } from "./topics.js";

function others(policies) {
  const bundles = policies.bundles ? policies.bundles.numBundles : 0;
  const roles = Object.entries((policies.auth_policies || {}).namespace_auth || {});
  return pairs([
    ["Bundles", String(bundles)],
    ["Clusters", (policies.replication_clusters || []).join(", ")],
    ["Permissions", roles.length ? roles.map(([role, actions]) => h("div", null, h("code", null, role), ` ${actions.join(", ")}`)) : "none granted"],
    ["Schema compatibility", policies.schema_compatibility_strategy || "UNDEFINED"],
    ["Encryption", policies.encryption_required ? "required" : "not required"],
  ]);
}

export function namespace(main, name, parameters, doors) {
  const { rest } = parseNamespace(name);
  let list = null;
  let policies = null;
  const draw = () =>
    patch(
      main,
      h("p", { class: "crumbs" }, h("a", { href: "#/namespaces" }, "Namespaces")),
      h("h1", null, name),
      h("div", { class: "row acts" }, button("Unload", () => unloadNamespace(name)), button("Clear backlogs", () => clearNamespace(name), "danger"), button("Delete", () => deleteNamespace(name), "danger")),
      list,
      policies ? section("Policies", null, policies) : null,
    );
  async function load() {
    const made = await Promise.all([
      policiesOf(rest, { topic: false, again: () => load().catch(doors.refused) }),
      get(rest).then(others),
    ]);
    policies = made;
    draw();
  }
  // Who may see the topics need not be allowed to see the policies.
  load().catch((error) => {
    policies = h("p", { class: "dim" }, error.message);
    draw();
  });
  return topicList((...content) => {
    list = content;
    draw();
  }, name, parameters, doors);
}
