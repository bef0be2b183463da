"""The page at ``/``: its files, and the events that it gets while it is open."""
