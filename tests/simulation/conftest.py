"""Frees what each test simulated."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from simulation.seeds import free_worlds


@pytest.fixture(autouse=True)
def freed() -> Iterator[None]:
    yield
    free_worlds()
