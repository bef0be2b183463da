"""Explains why nothing is delivered or published, with sentences, statistics and commands."""
