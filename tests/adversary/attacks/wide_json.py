"""Bodies of megabytes that are of the wrong kind."""

from __future__ import annotations

from target import Target

_PATHS = ("retention", "permissions/a-user", "persistence", "properties", "publishRate", "backlogQuota")
_BODIES = (
    b"[" + b"1," * 3_800_000 + b"1]",
    b'{"retentionSizeInMB":"' + b"9" * 7_600_000 + b'"}',
    b'"' + b"x" * 7_700_000 + b'"',
    b"[" + b'"produce",' * 700_000 + b'"produce"]',
    b"{" + b",".join(b'"k%d":"v"' % number for number in range(500_000)) + b"}",
)


def attack(target: Target) -> None:
    for body in _BODIES:
        for path in _PATHS:
            status, answer = target.ask("POST", f"/admin/v2/namespaces/a/ns/{path}", "a-admin", body)
            # Fields that a policy does not have are left aside.
            assert 400 <= status < 500 or (status, body[:1]) == (204, b"{"), (path, status, answer[:200])
            assert len(answer) < 5_000, (path, len(answer))
