"""``magnetar tail``, ``produce`` and ``consume``: messages in a terminal, and in pipes."""
