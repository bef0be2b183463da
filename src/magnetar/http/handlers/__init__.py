"""Handlers of endpoints: each calls the broker and returns the answer."""
