"""``magnetar tail``, ``produce`` and ``consume``: messages at a terminal, and from command to command."""
