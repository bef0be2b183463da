"""Figures of topics as operators ask for them."""
