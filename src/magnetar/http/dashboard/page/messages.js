// Messages of a topic: loaded only when somebody asks for them, because each look is in the audit log.

import { ask, get } from "./api.js";
import { h } from "./dom.js";
import { confirm, tell } from "./dialogs.js";
import { bytes, exact, plural } from "./format.js";
import { parseTopic } from "./names.js";
import { button, pairs, section } from "./parts.js";

const COUNTS = [10, 20, 50, 100];
const PREVIEW = 120;
const HEX_BYTES = 1024;
const HEX_LINE = 8;
const STARTS = [
  ["last", "the last ones"],
  ["first", "the oldest"],
  ["position", "a position"],
  ["time", "a time"],
];

const refusedFor = (error, what) => (error.status === 401 || error.status === 403 ? `${error.message}. ${what}` : error.message);
const at = (ms) => new Date(ms).toLocaleString(undefined, { dateStyle: "short", timeStyle: "medium" });

/** Bytes in hexadecimal with the text beside them, like `hexdump -C`. */
export function hexDump(data) {
  const lines = [];
  for (let start = 0; start < Math.min(data.length, HEX_BYTES); start += HEX_LINE) {
    const some = [...data.slice(start, Math.min(start + HEX_LINE, HEX_BYTES))];
    const digits = some.map((each) => each.toString(16).padStart(2, "0")).join(" ");
    const text = some.map((each) => (each >= 32 && each < 127 ? String.fromCharCode(each) : ".")).join("");
    lines.push(`${start.toString(16).padStart(4, "0")}  ${digits.padEnd(HEX_LINE * 3 - 1)}  ${text}`);
  }
  return lines.join("\n");
}

function bytesOf(message) {
  if (message.hex === undefined) return new TextEncoder().encode(message.content || "");
  return Uint8Array.from((message.hex.match(/../g) || []).map((each) => Number.parseInt(each, 16)));
}

const isLarge = (value) => typeof value === "object" && value !== null;

function preview(message) {
  if (message.damaged !== undefined) return `damaged: ${message.damaged}`;
  if (message.encrypted) return "encrypted";
  if (message.unopened) return `${message.compression ? `${message.compression}-compressed` : "large"}, ${bytes(message.uncompressedBytes)} uncompressed`;
  if (message.value !== undefined) return isLarge(message.value) ? JSON.stringify(message.value) : String(message.value);
  if (message.content === null) return "no content: the key is deleted by compaction";
  return message.content === undefined ? `0x${message.hex}` : message.content;
}

/** What the bytes of a message are that the broker does not open because of its size. */
function unopened({ compression, batchSize, uncompressedBytes }) {
  const kind = compression ? `compressed with ${compression}` : "as its producer framed them";
  const batch = batchSize > 1 ? `a batch of ${exact(batchSize)} messages` : "this message";
  return `The broker does not open contents above 1 MiB: these are the bytes of ${batch}, ${kind}; uncompressed they have ${bytes(uncompressedBytes)}.`;
}

function content(message) {
  if (message.damaged !== undefined || message.content === null) return null;
  const data = bytesOf(message);
  const shown = Math.min(data.length, HEX_BYTES);
  const raw = h(
    "details",
    { "data-key": "bytes", open: message.content === undefined && message.value === undefined },
    h("summary", null, shown < message.bytes ? `The first ${exact(shown)} of ${exact(message.bytes)} bytes` : plural(message.bytes, "byte")),
    h("pre", { class: "hex", tabindex: "0" }, hexDump(data)),
  );
  return [
    message.unopened ? h("p", { class: "dim" }, unopened(message)) : null,
    message.encrypted ? h("p", { class: "dim" }, "The content is encrypted by its producer; the broker cannot read it.") : null,
    message.value === undefined ? null : [h("h4", null, `Value, decoded as ${message.schema}`), h("pre", { tabindex: "0" }, JSON.stringify(message.value, null, 2))],
    message.content === undefined || message.encrypted || (message.value !== undefined && !isLarge(message.value)) ? null : [h("h4", null, "Text"), h("pre", { tabindex: "0" }, message.content)],
    message.truncated ? h("p", { class: "dim" }, "Only the beginning is shown.") : null,
    raw,
  ];
}

function facts(message) {
  const found = [["Message ID", h("code", null, message.id)]];
  const add = (name, value) => value !== undefined && found.push([name, value]);
  add("Published", message.publishTime && at(message.publishTime));
  add("Event time", message.eventTime && at(message.eventTime));
  add("Key", message.key === undefined ? undefined : [h("code", null, String(message.key)), message.base64EncodedKey ? " (Base64)" : null]);
  add("Ordering key", message.orderingKey && h("code", null, message.orderingKey));
  add("Producer", message.producerName);
  add("Sequence ID", message.sequenceId === undefined ? undefined : String(message.sequenceId));
  add("Size", message.bytes === undefined ? undefined : bytes(message.bytes));
  add("From cluster", message.replicatedFrom);
  add("Transaction", message.transaction && h("code", null, message.transaction));
  add("Not delivered", message.hidden);
  for (const [name, value] of Object.entries(message.properties || {})) found.push([`Property ${name}`, h("code", null, value)]);
  return pairs(found);
}

function line(message) {
  const text = preview(message);
  const words = text.length > PREVIEW ? `${text.slice(0, PREVIEW)}…` : text;
  return h(
    "details",
    { class: "message", "data-key": message.id },
    h("summary", { "data-row": true }, h("code", null, message.id), message.publishTime ? h("small", null, at(message.publishTime)) : null, message.key === undefined ? null : h("span", { class: "chip calm" }, String(message.key)), message.hidden === undefined ? null : h("span", { class: "chip slow" }, message.hidden), h("span", { class: "preview" }, words)),
    facts(message),
    content(message),
  );
}

/** The form, and what was asked for with it; draw: shows the view again. */
export class Messages {
  constructor(name, draw) {
    this.name = name;
    this.draw = draw;
    this.start = "last";
    this.told = null;
    this.failed = "";
  }

  async look(parameters) {
    this.failed = "";
    try {
      this.told = await get(`${this.name.messages}?${new URLSearchParams(parameters)}`);
      this.asked = parameters;
    } catch (error) {
      this.told = null;
      this.failed = refusedFor(error, "Looking at messages needs the permission to consume from this topic or its namespace.");
    }
    this.draw();
  }

  submitted(form) {
    const { start, count, position, time, key } = Object.fromEntries(new FormData(form));
    const parameters = { count };
    if (start === "first") parameters.position = "0:0";
    if (start === "position") parameters.position = position.trim();
    if (start === "time") parameters.time = String(new Date(time).getTime());
    if (key) parameters.key = key;
    return this.look(parameters);
  }

  form() {
    const id = (name) => `messages-${name}`;
    const field = (name, label, input) => h("div", { class: "field", "data-key": name }, h("label", { for: id(name) }, label), input);
    const onchange = (event) => {
      this.start = event.target.value;
      this.draw();
    };
    return h(
      "form",
      {
        class: "look",
        "data-key": "look",
        onsubmit: (event) => {
          event.preventDefault();
          this.submitted(event.target);
        },
      },
      field("start", "Start with", h("select", { id: id("start"), name: "start", onchange }, STARTS.map(([value, words]) => h("option", { value }, words)))),
      this.start === "position" ? field("position", "Position", h("input", { id: id("position"), name: "position", required: true, pattern: "\\s*\\d+:\\d+\\s*", placeholder: "LEDGER:ENTRY", title: "LEDGER:ENTRY, such as 12:0", autocomplete: "off" })) : null,
      this.start === "time" ? field("time", "Published since", h("input", { id: id("time"), name: "time", required: true, type: "datetime-local", step: "1" })) : null,
      field("key", "Key (empty: all)", h("input", { id: id("key"), name: "key", autocomplete: "off", spellcheck: "false" })),
      field("count", "Messages", h("select", { id: id("count"), name: "count" }, COUNTS.map((each) => h("option", { value: each }, each)))),
      h("button", { type: "submit", class: "main" }, "Show messages"),
    );
  }

  found() {
    const { told, asked } = this;
    if (!told) return h("p", { class: "empty" }, "Nothing is loaded until you ask for it: the audit log records each look.");
    const more = told.next ? button("Next page", () => this.look({ count: asked.count, position: told.next, ...(asked.key ? { key: asked.key } : {}) })) : null;
    if (more) more.setAttribute("data-page", "next");
    return [
      told.messages.length ? told.messages.map(line) : h("p", { class: "empty" }, "No such message."),
      h("div", { class: "row pages", "data-key": "pages" }, h("span", { class: "dim" }, `${plural(told.messages.length, "message")} of ${plural(told.entriesRead, "entry", "entries")}; the topic has ${told.first} to ${told.last}`), more),
    ];
  }

  section() {
    return section("Messages", null, this.form(), this.failed ? h("p", { class: "failed", role: "alert" }, this.failed) : this.found());
  }
}

function propertiesOf(text) {
  const found = {};
  for (const each of text.split("\n")) {
    const line = each.trim();
    const equals = line.indexOf("=");
    if (line && equals < 1) throw new Error(`A property is NAME=VALUE, not ${line}`);
    if (line) found[line.slice(0, equals).trim()] = line.slice(equals + 1).trim();
  }
  return found;
}

/** With the latest schema of the topic; without a schema, contents are bytes. */
async function schemaOf(name) {
  const { getSchemaResponses: versions } = await get(`${name.schemas}/schemas`);
  if (!versions.length) return { kind: null, given: { valueSchema: JSON.stringify({ type: "BYTES", schema: "" }) } };
  const latest = versions[versions.length - 1];
  return { kind: latest.type, given: { schemaVersion: latest.version } };
}

export async function sendMessage(full) {
  const name = parseTopic(full);
  let schema;
  try {
    schema = await schemaOf(name);
  } catch (error) {
    tell(refusedFor(error, "Sending needs the permission to produce to this topic or its namespace."), "bad");
    return;
  }
  confirm({
    title: "Send a test message",
    text: schema.kind ? `The content must fit the topic's schema, ${schema.kind}. All subscriptions get the message.` : "The topic has no schema: any text is allowed. All subscriptions get the message.",
    act: "Send",
    fields: [
      { name: "content", label: schema.kind === "JSON" || schema.kind === "AVRO" ? "Content, as JSON" : "Content", type: "textarea", required: false, hint: schema.kind === "AVRO" ? 'In Avro\'s JSON: a value of a union names its type, as in {"name": {"string": "tea"}}.' : null },
      { name: "key", label: "Key (empty: none)", required: false },
      { name: "properties", label: "Properties, one NAME=VALUE on each line", type: "textarea", required: false },
    ],
    async run({ content: payload, key, properties }) {
      const message = { payload, properties: propertiesOf(properties), ...(key ? { key } : {}) };
      let told;
      try {
        // A topic without a schema stays without one.
        told = await ask("POST", `${name.publish}?addSchema=false`, { ...schema.given, messages: [message] });
      } catch (error) {
        throw new Error(refusedFor(error, "Sending needs the permission to produce to this topic or its namespace."));
      }
      const [result] = told.messagePublishResults;
      if (result.errorCode) throw new Error(result.errorMsg);
      return `Sent as ${result.messageId}`;
    },
  });
}
