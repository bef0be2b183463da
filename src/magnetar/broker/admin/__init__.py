"""What operators ask of a broker: clusters, tenants, namespaces, topics, subscriptions."""
