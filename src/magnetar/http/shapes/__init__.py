"""JSON and paths as Pulsar writes them, read and made."""
