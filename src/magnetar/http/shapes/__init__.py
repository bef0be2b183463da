"""Converts between request values (JSON bodies, paths and queries in Pulsar's form) and stored values."""
