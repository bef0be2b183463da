"""Explains why nothing is delivered or published, with sentences, figures and commands."""
