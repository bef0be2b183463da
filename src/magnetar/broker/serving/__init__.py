"""Which topics this broker serves."""
