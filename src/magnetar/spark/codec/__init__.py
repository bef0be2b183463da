"""Columns and bytes: what messages hold, as Spark's values and back."""
