// What a topic stores: its ledgers, and how far its cursors are.

import { get } from "./api.js";
import { h } from "./dom.js";
import { bytes, count, plural } from "./format.js";
import { figure, table } from "./parts.js";

const MOST = 50;

function ledgerRow(each, open) {
  return h(
    "tr",
    { "data-key": String(each.ledgerId) },
    h("td", { class: "name" }, String(each.ledgerId), open ? h("span", { class: "chip calm" }, "open") : null),
    h("td", { class: "number" }, count(each.entries)),
    h("td", { class: "number" }, bytes(each.size)),
  );
}

function cursorRow(name, each) {
  return h(
    "tr",
    { "data-key": name },
    h("td", { class: "name" }, name),
    h("td", { class: "number" }, each.markDeletePosition),
    h("td", { class: "number" }, each.readPosition),
    h("td", { class: "number" }, count(each.totalNonContiguousDeletedMessagesRange)),
    h("td", { class: "number wide" }, count(each.messagesConsumedCounter)),
    h("td", { class: "number wide" }, each.cursorLedger < 0 ? "in the metadata" : `${each.cursorLedger}:${each.cursorLedgerLastEntry}`),
  );
}

const more = (left, what) => (left > 0 ? h("p", { class: "dim" }, `${count(left)} more ${what} are not shown.`) : null);

export async function ledgersOf(name) {
  const told = await get(`${name.rest}/internalStats`);
  const ledgers = told.ledgers.toReversed();
  // Of the one that is written to only the whole tells.
  const [current] = ledgers;
  const isOpen = current && told.state === "LedgerOpened" && !current.entries;
  if (isOpen) Object.assign(current, { entries: told.currentLedgerEntries, size: told.currentLedgerSize });
  const cursors = Object.entries(told.cursors).sort();
  const schemas = told.schemaLedgers.reduce((sum, each) => sum + each.size, 0);
  return [
    h(
      "dl",
      { class: "figures" },
      figure("Entries", count(told.numberOfEntries), `last entry ${told.lastConfirmedEntry}`),
      figure("Stored", bytes(told.totalSize), plural(ledgers.length, "ledger")),
      figure("In progress", count(told.pendingAddEntriesCount), "entries"),
      told.compactedLedger && told.compactedLedger.ledgerId >= 0 ? figure("Compacted", bytes(told.compactedLedger.size), `ledger ${told.compactedLedger.ledgerId}`) : null,
      schemas ? figure("Schemas", bytes(schemas), plural(told.schemaLedgers.length, "version")) : null,
    ),
    h(
      "details",
      { "data-key": "ledgers" },
      h("summary", null, "Ledgers, newest first"),
      ledgers.length
        ? table("Ledgers", [{ words: "Ledger" }, { words: "Entries", class: "number" }, { words: "Size", class: "number" }], ledgers.slice(0, MOST).map((each) => ledgerRow(each, isOpen && each === current)))
        : h("p", { class: "empty" }, "None: nothing was published yet, or everything was deleted."),
      more(ledgers.length - MOST, "ledgers"),
    ),
    h(
      "details",
      { "data-key": "cursors" },
      h("summary", null, "Cursors"),
      cursors.length
        ? table(
            "Cursors",
            [
              { words: "Cursor" },
              { words: "Mark-delete", class: "number" },
              { words: "Read", class: "number" },
              { words: "Holes", class: "number" },
              { words: "Consumed", class: "number wide" },
              { words: "Kept in", class: "number wide" },
            ],
            cursors.slice(0, MOST).map(([each, cursor]) => cursorRow(each, cursor)),
          )
        : h("p", { class: "empty" }, "None: the topic has no subscription."),
      more(cursors.length - MOST, "cursors"),
    ),
  ];
}
