"""Explains why nothing is delivered or published, in sentences, with statistics and useful commands."""
