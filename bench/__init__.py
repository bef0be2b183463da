"""Benchmarks with real peers: ``python -m bench`` measures and writes ``docs/measurements/benchmarks.md``."""
