"""The commands of ``pulsar-admin``: a table of them, their options, and what each asks."""
