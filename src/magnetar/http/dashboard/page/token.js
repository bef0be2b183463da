// The token with which the broker is asked: kept while this tab is open, and nowhere else.

import { ofBroker } from "./via.js";

const KEY = "magnetar.token";

export function token() {
  return sessionStorage.getItem(KEY) || "";
}

export function setToken(text) {
  if (text) sessionStorage.setItem(KEY, text);
  else sessionStorage.removeItem(KEY);
}

export function headers() {
  return token() ? { ...ofBroker(), Authorization: `Bearer ${token()}` } : ofBroker();
}
