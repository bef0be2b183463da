// Where a role may go that may not see everything: the namespaces and topics on which it has a permission.

import { get } from "./api.js";
import { h } from "./dom.js";
import { namespaceLink, topicLink } from "./names.js";

/** The address of the only place there is, if there is one, and links to all of them. */
export async function reachable() {
  const { namespaces, topics, complete } = await get("/dashboard/access/names");
  const places = [...namespaces.map((name) => [namespaceLink(name), name]), ...topics.map((full) => [topicLink(full), full.replace("persistent://", "")])];
  return {
    only: places.length === 1 && complete ? places[0][0] : null,
    links: places.length
      ? [
          h("ul", { class: "plain columns" }, places.map(([href, words]) => h("li", { "data-key": href }, h("a", { href, "data-row": true }, words)))),
          complete ? null : h("p", { class: "dim" }, "There may be more: open #/namespace/TENANT/NAMESPACE."),
        ]
      : h("p", { class: "empty" }, "Your role has no permission on any namespace or topic. An administrator of a tenant can grant one."),
  };
}
