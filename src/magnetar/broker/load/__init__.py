"""Load balancing: reports of brokers, placement of bundles, load shedding, splitting of bundles."""
