"""Benchmarks beside real peers: ``python -m bench`` measures, ``docs/benchmarks.md`` is what it writes."""
