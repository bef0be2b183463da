// The versions of a topic's schema, the newest first.

import { get } from "./api.js";
import { h } from "./dom.js";

function pretty(data) {
  try {
    return JSON.stringify(JSON.parse(data), null, 2);
  } catch {
    // A schema of bytes or of a primitive type has no definition in JSON.
    return data;
  }
}

export async function schemasOf(name) {
  const told = await get(`${name.schemas}/schemas`);
  const versions = told.getSchemaResponses.toReversed();
  if (!versions.length) return h("p", { class: "empty" }, "No schema: messages are bytes.");
  return versions.map((each, index) =>
    h(
      "details",
      { "data-key": String(each.version), open: index === 0 },
      h("summary", null, `Version ${each.version}, ${each.type}, ${new Date(each.timestamp).toLocaleString()}`),
      each.data && each.data !== "null" ? h("pre", { tabindex: "0" }, pretty(each.data)) : null,
    ),
  );
}
