"""The topics that this broker serves."""
