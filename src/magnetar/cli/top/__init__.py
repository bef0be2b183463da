"""``magnetar top``: shows topics and what they wait for, live."""
