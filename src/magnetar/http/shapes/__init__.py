"""Parses and creates JSON and paths in Pulsar's form."""
