// The address after the "#": where one is, and what of it is different elsewhere.

export function here() {
  const [path, query] = (location.hash.slice(1) || "/").split("?");
  const parts = path.split("/").slice(1).map(decodeURIComponent);
  return { path, parts, parameters: Object.fromEntries(new URLSearchParams(query || "")) };
}

/** The same place with other parameters; empty ones are left out. */
export function changed(parameters, path) {
  const now = here();
  const all = Object.entries({ ...now.parameters, ...parameters }).filter(([, value]) => value !== "" && value !== undefined);
  const query = new URLSearchParams(all.map(([name, value]) => [name, String(value)])).toString();
  return `#${path || now.path}${query ? `?${query}` : ""}`;
}
