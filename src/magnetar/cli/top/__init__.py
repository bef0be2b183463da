"""``magnetar top``: topics and what they wait for, as they change."""
