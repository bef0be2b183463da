// Asks the broker's HTTP interface.

import { headers } from "./token.js";
import { note } from "./via.js";

export class Refused extends Error {
  constructor(status, reason, more) {
    super(reason);
    this.status = status;
    this.more = more || {};
  }
}

export async function refusalOf(answer) {
  let told = {};
  try {
    told = await answer.json();
  } catch {
    // It is no JSON, as of a proxy in between: the status says it.
  }
  return new Refused(answer.status, told.reason || `The broker answered ${answer.status}`, told);
}

export async function ask(method, path, body) {
  const given = { method, headers: headers(), cache: "no-store" };
  if (body !== undefined) {
    given.body = JSON.stringify(body);
    given.headers["Content-Type"] = "application/json";
  }
  let answer;
  try {
    answer = await fetch(path, given);
  } catch {
    throw new Refused(0, "The broker did not answer");
  }
  note(answer);
  if (!answer.ok) throw await refusalOf(answer);
  const text = await answer.text();
  return text ? JSON.parse(text) : null;
}

export const get = (path) => ask("GET", path);
