"""Topics in which the broker keeps what it must remember itself."""
