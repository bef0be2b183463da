"""Realistic bugs that can be planted into the client of bookies, to show that the seeds find such."""

from __future__ import annotations
