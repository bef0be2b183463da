"""``magnetar tail``, ``produce`` and ``consume``: read and publish messages in a terminal or in a pipe."""
