"""Names and defaults that users rely on stay as they are recorded; others may be added."""

from __future__ import annotations

from tools.outside_names import RECORD, names


def test_what_users_rely_on_is_there() -> None:
    missing = set(RECORD.read_text().splitlines()) - set(names())
    assert not missing, "see tools/outside_names.py:\n" + "\n".join(sorted(missing))
