// Behind a proxy: which broker this page shows. The address of the page names it, so that every tab has its own.

const HEADER = "Magnetar-Broker";
const chosen = new URLSearchParams(location.search).get("broker") || "";
let asked = "";

/** Headers of requests that name the broker; a broker that is asked directly does not look at them. */
export const ofBroker = () => (chosen ? { [HEADER]: chosen } : {});

/** Notes whether a proxy answered: it names the broker that it asked. */
export function note(answer) {
  asked = answer.headers.get(HEADER) || asked;
}

/** Where the page of a broker is: behind a proxy only the proxy can be reached. */
export function pageOf(url) {
  return asked ? `/?broker=${encodeURIComponent(new URL(url).host)}` : `${url}/`;
}
