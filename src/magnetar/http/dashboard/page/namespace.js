// A namespace: its topics, its policies, and what can be done to it.

import { clearNamespace, deleteNamespace, unloadNamespace } from "./acts.js";
import { get } from "./api.js";
import { h, patch } from "./dom.js";
import { groupOf } from "./groups.js";
import { parseNamespace } from "./names.js";
import { button, orWhy, section } from "./parts.js";
import { permissionsOf } from "./permissions.js";
import { policiesOf } from "./policies.js";
import { quotasOf } from "./quotas.js";
import { topicList } from "./topics.js";

export function namespace(main, name, parameters, handlers) {
  const { rest, policies } = parseNamespace(name);
  let list = null;
  let more = null;
  let quotas = null;
  const draw = () =>
    patch(
      main,
      h("p", { class: "crumbs" }, h("a", { href: "#/namespaces" }, "Namespaces")),
      h("h1", null, name),
      h("div", { class: "row acts" }, button("Unload", () => unloadNamespace(name)), button("Clear backlogs", () => clearNamespace(name), "danger"), button("Delete", () => deleteNamespace(name), "danger")),
      list,
      more,
    );
  const again = () => load();
  async function load() {
    const [set, group, granted] = await Promise.all([
      orWhy(policiesOf({ side: "namespace", policies, rest, again })),
      orWhy(get(`${rest}/resourcegroup`).then((own) => groupOf(name, rest, own || "", again))),
      orWhy(get(`${rest}/permissions/subscription`).then((each) => permissionsOf(rest, name, again, { ofSubscriptions: each }))),
    ]);
    if (quotas) quotas = await orWhy(quotasOf(name, again));
    more = [section("Policies", null, set), section("Groups and quotas", null, group, quotas || h("div", { class: "row" }, button("Quotas of its bundles", showQuotas))), section("Permissions", null, granted)];
    draw();
  }
  function showQuotas() {
    quotas = [];
    load();
  }
  load();
  return topicList((...content) => {
    list = content;
    draw();
  }, name, parameters, handlers);
}
