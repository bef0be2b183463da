"""The time to live of a topic is a query parameter: a number like those in bodies."""

from __future__ import annotations

import pytest
from served import TOPIC, Served

PATH = f"/admin/v2/{TOPIC.replace('://', '/')}/messageTTL"


@pytest.fixture(scope="module")
def served() -> Served:
    found = Served()
    found.topic(TOPIC)
    return found


@pytest.mark.parametrize(
    ("given", "status"), [("60", 204), ("2147483648", 400), ("\u0663", 400), ("1.5", 400), ("-1", 412)]
)
def test_what_is_no_number_of_32_bits_is_refused(served: Served, given: str, status: int) -> None:
    assert served.ask("POST", PATH, query={"messageTTL": given}).status == status
