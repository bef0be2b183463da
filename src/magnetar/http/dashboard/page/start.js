// Begins: shows what the address asks for, and something else when the address changes.

import { confirm } from "./dialogs.js";
import { h, patch } from "./dom.js";
import { groups } from "./groups.js";
import { help, listenToKeys } from "./keys.js";
import { namespace } from "./namespace.js";
import { namespaces } from "./namespaces.js";
import { overview } from "./overview.js";
import { refusal } from "./parts.js";
import { reachable } from "./reachable.js";
import { changed, here } from "./routes.js";
import { storage } from "./storage.js";
import { switchTheme } from "./theme.js";
import { setToken, token } from "./token.js";
import { topic } from "./topic.js";
import { topics } from "./topics.js";

const STATES = { connecting: "connecting", live: "live", away: "no answer, retrying", stopped: "stopped", still: "as loaded" };
const TYPED_MS = 200;

const main = document.getElementById("main");
const live = document.getElementById("live");
const words = document.getElementById("words");
const tokenButton = document.getElementById("token");
let close = () => {};
let shownPath = null;
/** Counts views, so that one that is over says nothing any more. */
let turn = 0;

function state(kind) {
  if (live.dataset.state === kind) return;
  live.dataset.state = kind;
  live.textContent = STATES[kind];
}

function askForToken(text) {
  confirm({
    title: "Token",
    text: text || "The token authenticates this page at the broker. It is kept while this tab is open.",
    act: "Use it",
    fields: [{ name: "token", label: "Token (empty: none)", type: "password", required: false }],
    async run(values) {
      setToken(values.token.trim());
      open();
    },
  });
}

/** Views of everything: a role with one place lands there in place of them. */
const OF_EVERYTHING = new Set(["", "topics", "namespaces"]);

async function offerPlaces(mine, error) {
  let found;
  try {
    found = await reachable();
  } catch {
    // A client that is not authenticated: the refusal that is shown says it.
    return;
  }
  if (mine !== turn) return;
  if (found.only && OF_EVERYTHING.has(here().parts[0])) {
    history.replaceState(null, "", found.only);
    open();
    return;
  }
  patch(main, refusal(error, () => askForToken(), found.links));
}

function refusedIn(mine) {
  return (error) => {
    if (mine !== turn) return;
    state("stopped");
    patch(main, refusal(error, () => askForToken()));
    if (error.status === 401 || error.status === 403) offerPlaces(mine, error);
    if (error.status === 401 && !token() && !document.querySelector("dialog[open]")) {
      askForToken("This broker requires authentication. The token is kept while this tab is open.");
    }
  };
}

function view(parts, parameters, handlers) {
  const [first, ...rest] = parts;
  if (first === "topics") return topics(main, parameters, handlers);
  if (first === "namespaces") return namespaces(main, parameters, handlers);
  if (first === "namespace" && rest.length >= 2) return namespace(main, rest.join("/"), parameters, handlers);
  if (first === "topic" && rest.length >= 4) return topic(main, `${rest[0]}://${rest.slice(1).join("/")}`, parameters, handlers);
  if (first === "groups") return groups(main, parameters, handlers);
  if (first === "storage") return storage(main, parameters, handlers);
  if (first === "") return overview(main, handlers);
  handlers.refused({ status: 404, message: "Unknown page." });
  return () => {};
}

function titleOf(parts) {
  const last = parts[parts.length - 1];
  return last ? `${last} · Magnetar` : "Magnetar";
}

function open() {
  close();
  turn += 1;
  const mine = turn;
  const { path, parts, parameters } = here();
  const handlers = { refused: refusedIn(mine), state: (kind) => mine === turn && state(kind) };
  document.title = titleOf(parts);
  for (const link of document.querySelectorAll("#nav a")) {
    const place = link.getAttribute("href").slice(2).split("?")[0];
    const belongs = place === parts[0] || (place && parts[0] && place === `${parts[0]}s`);
    if (belongs) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (document.activeElement !== words) words.value = parameters.words || "";
  if (path !== shownPath) {
    // What was asked belongs to what is not shown any more.
    for (const dialog of document.querySelectorAll("dialog")) dialog.close();
    patch(main, h("p", { class: "empty" }, "Loading…"));
    scrollTo(0, 0);
    // Who goes on with keys goes on in what is new, but while something is typed.
    if (shownPath !== null && document.activeElement !== words) main.focus({ preventScroll: true });
  }
  shownPath = path;
  tokenButton.textContent = token() ? "Token: set" : "Token";
  state("connecting");
  close = view(parts, parameters, handlers);
}

let typing = 0;

function find() {
  clearTimeout(typing);
  typing = setTimeout(() => {
    const { parts } = here();
    const path = parts[0] === "namespace" || parts[0] === "topics" ? undefined : "/topics";
    const to = changed({ words: words.value.trim(), first: "" }, path);
    // One entry of the history for all that is typed.
    if (path === undefined) {
      history.replaceState(null, "", to);
      open();
    } else {
      location.hash = to;
    }
  }, TYPED_MS);
}

words.addEventListener("input", find);
document.getElementById("search").addEventListener("submit", (event) => event.preventDefault());
document.getElementById("help").onclick = help;
tokenButton.onclick = () => askForToken();
switchTheme(document.getElementById("theme"));
listenToKeys();
addEventListener("hashchange", open);
// A tab that nobody sees is sent nothing.
document.addEventListener("visibilitychange", () => {
  if (document.hidden) close();
  else open();
});
if (!document.hidden) open();
