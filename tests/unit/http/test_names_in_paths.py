"""A name in a path that no object can have is refused or not found, wherever it stands."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from served import Served

from magnetar.http.endpoints.table import ENDPOINTS

USUAL = {"tenant": "public", "namespace": "default", "cluster": "standalone", "domain": "persistent"}


def paths() -> Iterator[tuple[str, str]]:
    """Methods and paths, with a place for one of the names."""
    for row in ENDPOINTS:
        if row.upgrades or row.path.endswith("/shutdown"):
            continue
        for path in (row.path, *row.aliases):
            names = re.findall(r"\{(\w+)\}", path)
            for name in names:
                others = {other: USUAL.get(other, "x") for other in names}
                yield row.method, path.format_map({**others, name: "{}"})


@pytest.mark.parametrize("value", ["%2F", "%2Fa", "a%2F", "a%2F%2Fb", "..", "%00", "a%2F.%2Fb"])
def test_no_name_is_an_internal_error(value: str) -> None:
    served = Served()
    answers = {(method, path): served.ask(method, path.format(value)) for method, path in paths()}
    assert len(answers) > 1000
    assert [where for where, answer in answers.items() if answer.status == 500] == []
