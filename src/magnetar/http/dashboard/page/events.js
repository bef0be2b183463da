// Reads events of the broker as they come. EventSource cannot send a token, so it is done by hand.

import { Refused, refusalOf } from "./api.js";
import { setClock } from "./format.js";
import { headers } from "./token.js";

/** The connection ended, or never was. */
class Lost extends Error {}

const lost = (error) => {
  throw new Lost(error.message);
};

const AGAIN_MS = [500, 1000, 2000, 5000];
/** What passes: too many requests, a broker that starts, and one that does not answer a proxy. */
const PASSING = new Set([429, 502, 503, 504]);

async function read(body, take) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read().catch(lost);
    if (done) return;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const found = { event: "", data: "" };
      for (const line of block.split("\n")) {
        const colon = line.indexOf(": ");
        if (colon > 0) found[line.slice(0, colon)] = line.slice(colon + 2);
      }
      take(found.event, found.data);
    }
  }
}

/** What begins each of the watches that run anew. */
const watches = new Set();

/** Something was done here: what is shown is asked for at once. */
export function refresh() {
  for (const again of watches) again();
}

/** Runs again whenever something was done here; returns how to stop that. */
export function whenRefreshed(again) {
  watches.add(again);
  return () => watches.delete(again);
}

/**
 * Watches a path until it is told to stop: asks again when the connection ends.
 *
 * show(value) gets what is to be shown, refused(error) what the broker refused, state(text) how the connection is.
 */
export function watch(path, { show, refused, state }) {
  let asking = new AbortController();
  let stopped = false;
  let renewed = false;
  let failures = 0;
  let latest = null;

  async function once() {
    if (latest === null) state("connecting");
    const answer = await fetch(path, { headers: headers(), cache: "no-store", signal: asking.signal }).catch(lost);
    if (!answer.ok) throw await refusalOf(answer);
    setClock(answer.headers.get("Date"));
    await read(answer.body, (event, data) => {
      failures = 0;
      state("live");
      if (event === "shown") latest = JSON.parse(data);
      // Without an event nothing has changed, but for the time.
      if (latest !== null && event !== "gone") show(latest);
      if (event === "gone") {
        const told = JSON.parse(data);
        throw new Refused(told.status, told.reason);
      }
    });
  }

  async function run() {
    while (!stopped) {
      try {
        await once();
        // It ends now and then, so that who asks is asked who they are.
        if (failures === 0) continue;
      } catch (error) {
        if (stopped) return;
        if (renewed) {
          renewed = false;
          asking = new AbortController();
          continue;
        }
        if (error instanceof Refused && !PASSING.has(error.status)) {
          state("stopped");
          refused(error);
          return;
        }
        if (!(error instanceof Refused) && !(error instanceof Lost)) throw error;
        state("away");
      }
      await new Promise((resolve) => setTimeout(resolve, AGAIN_MS[Math.min(failures, AGAIN_MS.length - 1)]));
      failures += 1;
    }
  }

  const again = () => {
    renewed = true;
    asking.abort();
  };
  watches.add(again);
  run();
  return () => {
    stopped = true;
    watches.delete(again);
    asking.abort();
  };
}
