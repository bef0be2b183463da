"""From rows to topics."""
