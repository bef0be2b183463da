"""Administration of a broker: clusters, tenants, namespaces, topics and subscriptions."""
