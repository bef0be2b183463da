"""What clients prove themselves by, on both doors. Names are the official Python client's."""
