// Names of topics and namespaces, and where the broker has them.

const encoded = (parts) => parts.map(encodeURIComponent).join("/");

function publishPath(domain, namespace, local, partition) {
  const path = `/topics/${domain}/${encoded(namespace)}/${encodeURIComponent(local)}`;
  return partition === null ? path : `${path}/partitions/${partition}`;
}

export function parseTopic(full) {
  const [domain, rest] = full.split("://");
  const parts = rest.split("/");
  // Names of the older form have a cluster between tenant and namespace.
  const older = parts.length > 3;
  const namespace = parts.slice(0, older ? 3 : 2);
  const local = parts.slice(namespace.length).join("/");
  const found = /^(.*)-partition-(\d+)$/.exec(local);
  return {
    full,
    older,
    domain,
    local,
    namespace: namespace.join("/"),
    base: found ? `${domain}://${namespace.join("/")}/${found[1]}` : full,
    partition: found ? Number(found[2]) : -1,
    rest: `/admin/${older ? "" : "v2/"}${domain}/${encoded(namespace)}/${encodeURIComponent(local)}`,
    schemas: `/admin/${older ? "" : "v2/"}schemas/${encoded(namespace)}/${encodeURIComponent(found ? found[1] : local)}`,
    policies: `/dashboard/policies/topic/${domain}/${encoded(namespace)}/${encodeURIComponent(local)}`,
    // A name of the older form has no messages here: the path has no place for its cluster.
    messages: older ? null : `/admin/v2/magnetar/messages/${domain}/${encoded(namespace)}/${encodeURIComponent(local)}`,
    publish: older ? null : publishPath(domain, namespace, found ? found[1] : local, found ? found[2] : null),
    events: `/dashboard/events/topic/${domain}/${encoded(namespace)}/${encodeURIComponent(local)}`,
  };
}

export function parseNamespace(name) {
  const parts = name.split("/");
  return {
    name,
    tenant: parts[0],
    rest: `/admin/${parts.length > 2 ? "" : "v2/"}namespaces/${encoded(parts)}`,
    topics: `/admin/${parts.length > 2 ? "" : "v2/"}persistent/${encoded(parts)}`,
    policies: `/dashboard/policies/${encoded(parts)}`,
    quotas: `/admin/${parts.length > 2 ? "" : "v2/"}resource-quotas/${encoded(parts)}`,
    events: `/dashboard/events/topics/${encoded(parts)}`,
  };
}

export const topicLink = (full) => `#/topic/${full.replace("://", "/").split("/").map(encodeURIComponent).join("/")}`;
export const namespaceLink = (name) => `#/namespace/${encoded(name.split("/"))}`;
