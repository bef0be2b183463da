"""``magnetar top``: a live view of topics and of the reasons why they wait."""
