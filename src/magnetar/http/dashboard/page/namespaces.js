// Tenants with their namespaces.

import { createNamespace, createTenant } from "./acts.js";
import { get } from "./api.js";
import { h, patch } from "./dom.js";
import { namespaceLink } from "./names.js";
import { button, section } from "./parts.js";

const AT_ONCE = 50;

async function ofTenant(tenant) {
  return [tenant, await get(`/admin/v2/namespaces/${encodeURIComponent(tenant)}`)];
}

export function namespaces(main, _parameters, { refused, state }) {
  let closed = false;
  async function load() {
    const [tenants, [cluster]] = await Promise.all([get("/admin/v2/tenants"), get("/admin/v2/clusters").then((all) => all.filter((each) => each !== "global"))]);
    const found = await Promise.all(tenants.sort().slice(0, AT_ONCE).map(ofTenant));
    if (closed) return;
    const again = () => load().catch(refused);
    patch(
      main,
      h("h1", null, "Namespaces"),
      h("div", { class: "row" }, button("Create tenant", () => createTenant(cluster, again), "main")),
      found.map(([tenant, names]) =>
        section(
          tenant,
          button("Create namespace", () => createNamespace(tenant, again)),
          names.length
            ? h("ul", { class: "plain columns" }, names.map((name) => h("li", { "data-key": name }, h("a", { href: namespaceLink(name), "data-row": true }, name.slice(tenant.length + 1)))))
            : h("p", { class: "empty" }, "No namespaces."),
        ),
      ),
      tenants.length > AT_ONCE ? h("p", { class: "dim" }, `${tenants.length - AT_ONCE} more tenants are not shown.`) : null,
    );
    state("still");
  }
  load().catch(refused);
  return () => {
    closed = true;
  };
}
