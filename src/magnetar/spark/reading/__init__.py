"""Reads the messages of topics as rows of DataFrames."""
