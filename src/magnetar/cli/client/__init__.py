"""The commands of ``pulsar-client``."""
