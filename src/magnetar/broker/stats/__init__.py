"""Statistics of topics for operators."""
