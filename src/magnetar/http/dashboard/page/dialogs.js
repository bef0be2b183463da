// Asks before something is done, and says what became of it.

import { h } from "./dom.js";
import { refresh } from "./events.js";

let number = 0;

/** Tells of something, for as long as it takes to read it. */
export function tell(text, tone = "good") {
  const line = h("p", { class: `toast ${tone}` }, text);
  document.getElementById("told").append(line);
  setTimeout(() => line.remove(), tone === "bad" ? 12000 : 5000);
}

function field(each, id) {
  if (each.type === "checkbox") {
    return h("label", { class: "check" }, h("input", { id, name: each.name, type: "checkbox", checked: each.checked }), each.label);
  }
  const shared = { id, name: each.name, required: each.required !== false };
  const input = each.choices
    ? h("select", shared, each.choices.map(([value, words]) => h("option", { value, selected: value === each.value }, words)))
    : each.type === "textarea"
    ? h("textarea", { ...shared, rows: 4, spellcheck: "false" })
    : h("input", {
        ...shared,
        type: each.type || "text",
        value: each.value,
        min: each.min,
        step: each.step,
        pattern: each.pattern,
        placeholder: each.placeholder,
        autocomplete: "off",
        spellcheck: "false",
      });
  return h("div", { class: "field", "data-field": each.name }, h("label", { for: id }, each.label), input, each.hint ? h("small", null, each.hint) : null);
}

/**
 * Opens a dialog, and does what it is for once it is confirmed.
 *
 * typed: has to be typed before it can be; fields: [{name, label, type, when: [another, its value], …}]; run(values) does it, and the dialog
 * stays open with the reason if it is refused.
 */
export function confirm({ title, text, act, typed, fields = [], danger = false, run }) {
  number += 1;
  const id = `dialog-${number}`;
  const wanted = [...fields];
  if (typed) wanted.push({ name: "typed", label: `Type ${typed} to continue` });
  const failed = h("p", { class: "failed", role: "alert" });
  const button = h("button", { type: "submit", class: danger ? "danger" : "main" }, act);
  const form = h(
    "form",
    { novalidate: false },
    h("h2", { id: `${id}-title` }, title),
    text ? h("p", null, text) : null,
    wanted.map((each, index) => field(each, `${id}-${index}`)),
    failed,
    h("div", { class: "row end" }, h("button", { type: "button", class: "quiet", onclick: () => dialog.close() }, "Cancel"), button),
  );
  const dialog = h("dialog", { "aria-labelledby": `${id}-title` }, form);
  const values = () => Object.fromEntries(new FormData(form));
  const check = () => {
    for (const { name, when } of wanted) {
      if (!when) continue;
      const place = form.querySelector(`[data-field="${name}"]`);
      const input = form.elements[name];
      // A field that does not matter is neither shown nor required.
      place.hidden = form.elements[when[0]].value !== when[1];
      input.disabled = place.hidden;
    }
    if (typed) button.disabled = values().typed !== typed;
  };
  form.oninput = check;
  form.onsubmit = async (event) => {
    event.preventDefault();
    button.disabled = true;
    failed.textContent = "";
    const place = location.hash;
    try {
      const done = await run(values());
      dialog.close();
      if (done) tell(done);
      // Who was led elsewhere has left what may be gone now; what is there is asked for as it comes.
      if (location.hash === place) refresh();
    } catch (error) {
      failed.textContent = error.message;
      button.disabled = false;
    }
  };
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  check();
  dialog.showModal();
  return dialog;
}

export function show(title, ...content) {
  number += 1;
  const id = `dialog-${number}`;
  const dialog = h(
    "dialog",
    { "aria-labelledby": `${id}-title` },
    h("h2", { id: `${id}-title` }, title),
    content,
    h("div", { class: "row end" }, h("button", { type: "button", class: "main", autofocus: true, onclick: () => dialog.close() }, "Close")),
  );
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}
