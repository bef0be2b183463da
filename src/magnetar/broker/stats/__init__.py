"""Figures of topics for operators."""
