// Sends an operation with the values of a form, and shows the answer: what pulsar-admin or curl would get.

const TOKEN = "magnetar.token";
/** The longest answer that is shown, in characters. */
const MOST = 64 * 1024;
const CHANGING = new Set(["POST", "PUT", "DELETE"]);
const JSON_TYPE = "application/json";
/** The values that were given last, by name: the next form begins with them. */
const given = new Map();

function element(name, properties, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties || {})) {
    if (key.startsWith("on")) made[key] = value;
    else if (value !== undefined && value !== false) made.setAttribute(key, value === true ? "" : String(value));
  }
  made.append(...children.filter((each) => each !== null && each !== undefined));
  return made;
}

/** The token is that of the page at "/", kept while this tab is open. */
export function keepToken(input) {
  input.form.addEventListener("submit", (event) => event.preventDefault());
  input.value = sessionStorage.getItem(TOKEN) || "";
  input.addEventListener("input", () => {
    if (input.value.trim()) sessionStorage.setItem(TOKEN, input.value.trim());
    else sessionStorage.removeItem(TOKEN);
  });
}

function authorization() {
  const token = sessionStorage.getItem(TOKEN);
  return token ? { Authorization: `Bearer ${token}` } : {};
}

/** Names of subscriptions below a topic are encoded twice: so do Pulsar's clients. */
function encoded(name, value) {
  const once = encodeURIComponent(value);
  return name === "subscription" ? encodeURIComponent(once) : once;
}

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

function curl(asked) {
  const parts = ["curl"];
  if (asked.method !== "GET") parts.push("-X", asked.method);
  if (asked.headers.Authorization) parts.push("-H", '"Authorization: Bearer $TOKEN"');
  if (asked.body !== undefined) parts.push("-H", quoted(`Content-Type: ${JSON_TYPE}`), "-d", quoted(asked.body));
  return [...parts, quoted(location.origin + asked.target)].join(" ");
}

/** A value of a schema with all fields, to begin with; depth bounds schemas that contain themselves. */
function sample(schema, resolved, depth = 4) {
  const found = resolved(schema);
  if (found.anyOf) return sample(found.anyOf[0], resolved, depth);
  if (found.enum) return found.enum[0];
  if (found.type === "array") return depth ? [sample(found.items, resolved, depth - 1)] : [];
  if (found.type === "object") {
    const fields = depth ? Object.entries(found.properties || {}) : [];
    return Object.fromEntries(fields.map(([name, each]) => [name, sample(each, resolved, depth - 1)]));
  }
  return { boolean: false, integer: 0, number: 0 }[found.type] ?? "";
}

function field(id, words, input) {
  input.id = id;
  return element("div", { class: "field" }, element("label", { for: id }, words), input);
}

function inputOf(parameter) {
  const { name, schema } = parameter;
  const known = given.get(name);
  if (schema.type === "boolean") {
    const choices = [["", schema.default === undefined ? "not sent" : `${schema.default} (default)`], ["true", "true"], ["false", "false"]];
    return element("select", { name }, ...choices.map(([value, words]) => element("option", { value }, words)));
  }
  return element("input", {
    name,
    type: schema.type === "integer" ? "number" : "text",
    required: parameter.in === "path",
    value: parameter.in === "path" ? known : undefined,
    placeholder: schema.default,
    autocomplete: "off",
    spellcheck: "false",
  });
}

/** What the values of a form ask for. */
function request(operation, form) {
  const values = new FormData(form);
  const query = new URLSearchParams();
  const headers = authorization();
  let target = operation.path;
  for (const { name, in: place } of operation.known) {
    const value = values.get(name);
    if (place === "path") {
      given.set(name, value);
      target = target.replace(`{${name}}`, encoded(name, value));
    } else if (value && place === "query") query.set(name, value);
    else if (value) headers[name] = value;
  }
  const body = (values.get("body") || "").trim() || undefined;
  if (body !== undefined) headers["Content-Type"] = JSON_TYPE;
  const asked = String(query);
  return { method: operation.method, target: target + (asked ? `?${asked}` : ""), headers, body };
}

function laidOut(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    // It is text, such as metrics.
    return text;
  }
}

/** Reads as much of an answer as is shown, and no more. */
async function beginning(answer) {
  if (!answer.body) return { text: "", more: false };
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return { text, more: false };
    text += value;
    if (text.length > MOST) {
      await reader.cancel();
      return { text: text.slice(0, MOST), more: true };
    }
  }
}

async function send(asked, place) {
  const shown = [element("p", { class: "quiet" }, "as a command:"), element("pre", null, curl(asked))];
  place.replaceChildren(element("p", { role: "status" }, "The broker is asked…"), ...shown);
  const began = performance.now();
  try {
    const answer = await fetch(asked.target, { method: asked.method, headers: asked.headers, body: asked.body, cache: "no-store", redirect: "manual" });
    if (answer.type === "opaqueredirect") {
      place.replaceChildren(element("p", { role: "status", class: "status refused" }, "Another broker answers this, and a page may not ask other addresses: open this page there, or at a proxy, which asks all brokers."), ...shown);
      return;
    }
    const { text, more } = await beginning(answer);
    const took = Math.round(performance.now() - began);
    const words = `${answer.status} ${answer.statusText}, ${took} ms`;
    place.replaceChildren(
      ...[
        element("p", { role: "status", class: answer.ok ? "status" : "status refused" }, words),
        ...["Warning", "ETag"].filter((name) => answer.headers.get(name)).map((name) => element("p", { class: "quiet" }, `${name}: ${answer.headers.get(name)}`)),
        text ? element("pre", { class: "answer", tabindex: "0", "aria-label": "Answer" }, more ? text : laidOut(text)) : element("p", { class: "quiet" }, "The answer has no content."),
        more ? element("p", { class: "quiet" }, `The rest is not shown: the answer has more than ${MOST} characters.`) : null,
        ...shown,
      ].filter(Boolean),
    );
  } catch (error) {
    place.replaceChildren(element("p", { role: "status", class: "status refused" }, `The broker did not answer: ${error.message}`), ...shown);
  }
}

/** The form of an operation; resolved: follows references of the description. */
export function formOf(operation, resolved) {
  const content = operation.requestBody && operation.requestBody.content;
  if (operation.path.startsWith("/ws/")) return element("p", { class: "quiet" }, "A WebSocket cannot be tried here.");
  if (content && !content[JSON_TYPE]) return element("p", { class: "quiet" }, "The body is a form with a file: use pulsar-admin or curl.");
  const known = operation.parameters.map(resolved);
  const id = (name) => `${operation.operationId} ${name}`;
  const answer = element("div", { class: "answered", "aria-live": "polite" });
  const body = content ? element("textarea", { name: "body", rows: 4, spellcheck: "false" }) : null;
  const fill = () => {
    body.value = JSON.stringify(sample(content[JSON_TYPE].schema, resolved), null, 2);
    body.rows = Math.min(20, body.value.split("\n").length);
  };
  const changes = CHANGING.has(operation.method);
  const sure = element("input", { type: "checkbox", name: "sure", required: true });
  return element(
    "form",
    {
      class: "trying",
      onsubmit: (event) => {
        event.preventDefault();
        send(request({ ...operation, known }, event.currentTarget), answer);
      },
    },
    element("h3", null, "Try it"),
    ...known.map((each) => field(id(each.name), `${each.name}${each.in === "path" ? "" : ` (${each.in})`}`, inputOf(each))),
    body ? field(id("body"), "Body (JSON)", body) : null,
    body ? element("button", { type: "button", onclick: fill }, "Insert all fields") : null,
    changes ? element("label", { class: "sure" }, sure, " Change this cluster") : null,
    element("button", { type: "submit", class: "send" }, `Send ${operation.method}`),
    answer,
  );
}
