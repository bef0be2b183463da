"""What clients prove themselves by, on both listeners. Names are the official Python client's."""
