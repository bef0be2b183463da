"""Load of a cluster's brokers: what they report, where bundles go, which of them move, which are split."""
