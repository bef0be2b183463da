// Shows /openapi.json: no frameworks, nothing from elsewhere.

import { formOf, keepToken } from "./trying.js";

const groups = document.getElementById("groups");
const filter = document.getElementById("filter");
const older = document.getElementById("older");
const count = document.getElementById("count");
let description = null;
let operations = [];

function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function resolved(value) {
  if (!value || !value.$ref) return value;
  return value.$ref.split("/").slice(1).reduce((found, name) => found[name], description);
}

function table(heads, rows) {
  const made = element("table");
  const head = made.createTHead().insertRow();
  for (const text of heads) {
    const cell = element("th", text);
    cell.scope = "col";
    head.append(cell);
  }
  const body = made.createTBody();
  for (const row of rows) {
    const line = body.insertRow();
    for (const text of row) line.insertCell().textContent = text;
  }
  return made;
}

function kind(schema) {
  const found = resolved(schema);
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (found.anyOf) return kind(found.anyOf[0]);
  if (found.enum) return found.enum.join(" | ");
  if (found.type === "array") return `list of ${kind(found.items)}`;
  if (found.additionalProperties) return `object of ${kind(found.additionalProperties)}`;
  return found.type;
}

function inside(operation) {
  const made = element("div", undefined, "inside");
  if (operation.description) made.append(element("p", operation.description));
  made.append(element("p", `Allowed by: ${operation["x-allowed-by"]}`));
  if (operation.parameters.length) {
    const rows = operation.parameters.map((each) => resolved(each)).map((each) => [
      each.name,
      each.in,
      each.schema.type,
      each.schema.default === undefined ? "" : String(each.schema.default),
    ]);
    made.append(table(["parameter", "in", "type", "default"], rows));
  }
  if (operation.requestBody) {
    const [{ schema }] = Object.values(operation.requestBody.content);
    const fields = Object.entries(resolved(schema).properties || {});
    made.append(element("p", `Body: ${kind(schema)}`));
    if (fields.length) {
      made.append(table(["field", "type", "meaning"], fields.map(([name, each]) => [name, kind(each), each.description || ""])));
    }
  }
  const answers = Object.entries(operation.responses).map(([status, each]) => [status, resolved(each).description]);
  made.append(table(["status", "when"], answers), formOf(operation, resolved));
  return made;
}

function shown(operation) {
  const made = element("details");
  const head = element("summary");
  head.append(element("span", operation.method, "method"));
  head.append(element("span", operation.path, "path"));
  head.append(element("span", operation.summary, "what"));
  made.append(head);
  made.addEventListener("toggle", () => {
    if (made.open && made.childElementCount === 1) made.append(inside(operation));
  });
  return made;
}

function show() {
  const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
  const fitting = operations.filter(
    (each) => (older.checked || !each.deprecated) && words.every((word) => each.text.includes(word)),
  );
  const byTag = new Map();
  for (const each of fitting) {
    const tag = each.tags[0];
    if (!byTag.has(tag)) byTag.set(tag, []);
    byTag.get(tag).push(each);
  }
  const sections = [...byTag.keys()].sort().map((tag) => {
    const section = element("section");
    section.append(element("h2", tag), ...byTag.get(tag).map(shown));
    return section;
  });
  groups.replaceChildren(...sections);
  groups.setAttribute("aria-busy", "false");
  count.value = `${fitting.length} of ${operations.length}`;
}

async function load() {
  const answer = await fetch("/openapi.json");
  if (!answer.ok) throw new Error(`the broker answers ${answer.status}`);
  description = await answer.json();
  for (const [path, methods] of Object.entries(description.paths)) {
    for (const [method, operation] of Object.entries(methods)) {
      const each = { ...operation, path, method: method.toUpperCase() };
      each.text = `${each.method} ${path} ${each.summary}`.toLowerCase();
      operations.push(each);
    }
  }
  show();
}

keepToken(document.getElementById("token"));
filter.addEventListener("input", show);
older.addEventListener("change", show);
load().catch((error) => {
  groups.replaceChildren(element("p", `The description could not be loaded: ${error.message}`));
  groups.setAttribute("aria-busy", "false");
});
