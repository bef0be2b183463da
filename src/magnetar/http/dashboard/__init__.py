"""The page at ``/``: what it consists of, and what it is told while somebody looks."""
