"""From topics to rows."""
