"""The commands of ``pulsar-admin``: their table, their options, and their requests."""
