"""Packages over HTTP, on a simulated world: names, contents, forms, lives, and who may."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from served import Served
from test_endpoint_table import Knows

from magnetar.broker.packages import PackageRecord
from magnetar.broker.policies.grants import StoredGrants
from magnetar.http.engine.bodies import Parts
from magnetar.http.engine.message import ArrivingBody, Request, Response
from magnetar.http.routing import Access
from magnetar.naming.package_name import PackageName
from magnetar.security.rules import PulsarRules

ROOT = "/admin/v3/packages/function/public/default"
ONE = f"{ROOT}/words/1"
BOUNDARY = "b0undary"
CONTENTS = bytes(range(256)) * 2000
"""Some entries."""
TYPE = f"multipart/form-data; boundary={BOUNDARY}"


class Socket:
    def __init__(self) -> None:
        self.holds: list[bool] = []

    def hold(self, held: bool) -> None:
        self.holds.append(held)


@pytest.fixture
def served() -> Served:
    found = Served()
    found.broker.settings = replace(found.broker.settings, packages=True, max_package_bytes=1 << 20)
    return found


def part(name: str, contents: bytes) -> bytes:
    return f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n'.encode() + contents


def form(*parts: bytes) -> bytes:
    return b"".join(each + b"\r\n" for each in parts) + f"--{BOUNDARY}--\r\n".encode()


def whole(contents: bytes = CONTENTS, **metadata: Any) -> bytes:
    return form(
        part("file", contents), part("metadata", json.dumps({"description": "d", **metadata}).encode())
    )


def arriving(served: Served, *pieces: bytes, ends: bool = True) -> ArrivingBody:
    body = ArrivingBody(served.world.simulation.io.loop, Socket(), 30)
    for piece in pieces:
        body.feed(piece)
    if ends:
        body.end()
    return body


def upload(served: Served, *pieces: bytes, path: str = ONE, ends: bool = True, kind: str = TYPE) -> Response:
    body = arriving(served, *pieces, ends=ends)
    request = Request("POST", path, headers={"content-type": kind}, arriving=body)
    return served.world.run(served.http.answer(request))


def download(served: Served, path: str = ONE) -> bytes:
    found = served.ask("GET", path)
    assert found.status == 200, found.body
    assert found.streamed is not None
    data = b""
    while piece := served.world.run(found.streamed.next()):
        data += piece
    found.streamed.close()
    assert dict(found.headers)["Content-Length"] == str(len(data))
    return data


def ledgers(served: Served) -> Sequence[int]:
    return served.world.run(served.world.store.ledger_ids())


def reason(response: Response) -> tuple[int, str]:
    return response.status, json.loads(response.body)["reason"]


@pytest.mark.parametrize("contents", [b"", b"x", CONTENTS, CONTENTS[: 2 * 128 * 1024]])
def test_what_was_uploaded_is_downloaded(served: Served, contents: bytes) -> None:
    assert upload(served, whole(contents)).status == 204
    assert download(served) == contents
    assert upload(served, whole(contents), path=f"{ROOT}/words/0.9").status == 204
    assert served.get(ROOT) == ["words"]
    assert served.get(f"{ROOT}/words") == ["0.9", "1"]
    assert served.get(ROOT.replace("function", "sink")) == []


def test_what_is_said_of_it(served: Served) -> None:
    upload(served, whole(contact="me", properties={"k": "v"}))
    first = served.get(f"{ONE}/metadata")
    assert first.pop("createTime") == first.pop("modificationTime") > 0
    assert first == {"description": "d", "contact": "me", "properties": {"k": "v"}}
    served.world.wait(5)
    assert served.ask("PUT", f"{ONE}/metadata", json.dumps({"description": "e"})).status == 204
    second = served.get(f"{ONE}/metadata")
    assert second.pop("modificationTime") >= second.pop("createTime") + 5000
    assert second == {"description": "e", "properties": {}}
    assert download(served) == CONTENTS


def test_a_package_goes_with_its_ledger(served: Served) -> None:
    before = ledgers(served)
    upload(served, whole())
    upload(served, whole(), path=f"{ROOT}/words/2")
    assert served.ask("DELETE", ONE).status == 204
    assert served.get(f"{ROOT}/words") == ["2"]
    assert served.ask("DELETE", f"{ROOT}/words/2").status == 204
    assert ledgers(served) == before
    assert served.get(ROOT) == []
    for method, path in (("GET", ONE), ("DELETE", ONE), ("GET", f"{ONE}/metadata"), ("GET", f"{ROOT}/words")):
        told = reason(served.ask(method, path))
        assert told[0] == 404, path
        assert told[1].endswith("does not exist")


def test_what_is_changed_while_it_is_deleted_stays_and_is_told_so(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload(served, whole())
    storage = served.broker.packages
    look = storage.find

    async def changed_then(name: PackageName) -> tuple[PackageRecord, int] | None:
        found = await look(name)
        assert found is not None
        await storage.change(name, *found)
        return found

    with monkeypatch.context() as patched:
        patched.setattr(storage, "find", changed_then)
        status, told = reason(served.ask("DELETE", ONE))
    assert (status, told.rpartition(" was ")[2]) == (409, "changed by another request in the meantime")
    assert download(served) == CONTENTS


def test_a_second_one_by_that_name_is_refused_and_leaves_nothing(served: Served) -> None:
    upload(served, whole())
    before = ledgers(served)
    assert reason(upload(served, whole(b"other"))) == (
        404,
        "Package 'function://public/default/words@1' already exists",
    )
    assert download(served) == CONTENTS
    assert ledgers(served) == before


def test_of_two_at_the_same_time_one_stays(served: Served) -> None:
    before = len(ledgers(served))
    loop = served.world.simulation.io.loop
    slow = arriving(served, whole()[:1000], ends=False)
    request = Request("POST", ONE, headers={"content-type": TYPE}, arriving=slow)
    first = loop.create_task(served.http.answer(request))
    served.world.wait(1)
    assert upload(served, whole(b"faster")).status == 204
    slow.feed(whole()[1000:])
    slow.end()

    async def ended() -> Response:
        found: Response = await first
        return found

    assert reason(served.world.run(ended()))[0] == 404
    assert download(served) == b"faster"
    assert len(ledgers(served)) == before + 1


GOOD = part("metadata", b"{}")
FILE = part("file", b"x")


@pytest.mark.parametrize(
    ("body", "status", "why"),
    [
        (form(GOOD), 400, "has no part file"),
        (form(FILE), 400, "has no part metadata"),
        (form(GOOD, FILE, FILE), 400, "the unknown part 'file'"),
        (form(GOOD, FILE, part("other", b"")), 400, "the unknown part 'other'"),
        (form(FILE, part("metadata", b"{")), 400, "is not JSON"),
        (form(FILE, part("metadata", b"[]")), 400, "must be an object"),
        (form(FILE, part("metadata", b'{"properties": 1}')), 400, "PackageMetadata.properties"),
        (form(FILE, part("metadata", b" " * 70_000)), 400, "exceeds 65536 bytes"),
        (form(GOOD, part("file", bytes(1 << 20) + b"x")), 412, "more than 1048576 bytes"),
        (form(GOOD, FILE)[:-8], 400, "ended before its last boundary"),
        (f"--{BOUNDARY}\r\nA: {'x' * 9000}".encode(), 400, "headers of a part"),
        (f"--{BOUNDARY}\r\n\r\nx\r\n--{BOUNDARY}--".encode(), 400, "has no name"),
    ],
)
def test_a_form_that_is_none_leaves_nothing(served: Served, body: bytes, status: int, why: str) -> None:
    before = ledgers(served)
    told = reason(upload(served, body))
    assert told[0] == status
    assert why in told[1]
    assert ledgers(served) == before
    assert served.get(ROOT) == []


def test_who_goes_while_uploading_leaves_nothing(served: Served) -> None:
    before = ledgers(served)
    body = arriving(served, whole()[:300_000], ends=False)
    loop = served.world.simulation.io.loop
    request = Request("POST", ONE, headers={"content-type": TYPE}, arriving=body)
    task = loop.create_task(served.http.answer(request))
    served.world.wait(1)
    assert len(ledgers(served)) == len(before) + 1
    body.fail("The body ended before its end")
    served.world.wait(1)
    assert task.done()
    assert ledgers(served) == before


@pytest.mark.parametrize(
    "kind", ["application/json", "multipart/form-data", "multipart/form-data; boundary="]
)
def test_what_is_no_form_is_refused(served: Served, kind: str) -> None:
    assert upload(served, b"{}", kind=kind).status == 400


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_parts_are_found_however_they_come(served: Served, size: int) -> None:
    contents = f"-\r\n--{BOUNDARY[:-1]}x\r\n--{BOUNDARY[:-1]}\r\r\n-\n--{BOUNDARY}\r\n".encode() * 3
    parts = [part("one", contents), part("none", b""), part("bare", b"")[:-2], part("two", b"2")]
    sent = b"before\r\n" + form(*parts) + b"behind"
    body = arriving(served, ends=False)
    found: dict[str, bytes] = {}

    async def read() -> None:
        request = Request("POST", ONE, headers={"content-type": TYPE}, arriving=body)
        came = Parts(request)
        while (name := await came.next()) is not None:
            found[name] = await came.whole(10_000)

    task = served.world.simulation.io.loop.create_task(read())
    for at in range(0, len(sent), size):
        body.feed(sent[at : at + size])
        served.world.wait(0.001)
    assert task.done()
    assert found == {"one": contents, "none": b"", "bare": b"", "two": b"2"}


@pytest.mark.parametrize(
    "path",
    [
        "/admin/v3/packages/jar/public/default",
        "/admin/v3/packages/jar/public/default/words/1",
        f"{ROOT}/wo%2Frds/1",
        f"{ROOT}/words/..",
        f"{ROOT}/wo@rds",
        "/admin/v3/packages/function/%2E/default/words",
    ],
)
def test_names_that_break_the_rules(served: Served, path: str) -> None:
    assert reason(served.ask("GET", path))[0] == 412


def test_switched_off_nothing_is_served(served: Served) -> None:
    served.broker.settings = replace(served.broker.settings, packages=False)
    answers = [served.ask("GET", path) for path in (ROOT, f"{ROOT}/words", ONE, f"{ONE}/metadata")]
    answers += [
        served.ask("DELETE", ONE),
        served.ask("PUT", f"{ONE}/metadata", "{}"),
        upload(served, whole()),
    ]
    for found in answers:
        assert reason(found) == (503, "Packages are disabled: set enablePackagesManagement=true")


def test_who_may(served: Served) -> None:
    upload(served, whole())
    grants = StoredGrants(
        served.broker.metadata, served.broker.policies.tenants, served.broker.policies.namespaces
    )
    served.ask("POST", "/admin/v2/namespaces/public/default/permissions/packer", '["packages"]')
    served.ask("POST", "/admin/v2/namespaces/public/default/permissions/other", '["produce", "functions"]')
    rules = PulsarRules(grants, lambda: frozenset({"admin"}))
    with served.access(Access(Knows(), rules)):
        for role, status in (("admin", 200), ("packer", 200), ("other", 401), ("nobody", 401)):
            headers = {"authorization": f"Bearer {role}"}
            for path in (ROOT, ONE, f"{ONE}/metadata", f"{ROOT}/words"):
                found = served.world.run(served.http.answer(Request("GET", path, headers=headers)))
                assert found.status == status, (role, path)
                if found.streamed is not None:
                    found.streamed.close()


def test_packages_outlive_a_crash_and_what_was_not_finished_does_not(served: Served) -> None:
    upload(served, whole())
    body = arriving(served, whole()[:300_000], ends=False)
    request = Request("POST", f"{ROOT}/half/1", headers={"content-type": TYPE}, arriving=body)
    loop = served.world.simulation.io.loop
    loop.create_task(served.http.answer(request))
    served.world.wait(1)
    candidates = ledgers(served)
    kept = served.world.run(served.broker.packages.ledger_ids())
    assert len(candidates) > len(kept) == 1
    # What a start does: whatever nothing names goes.
    schemas = served.world.run(served.broker.schemas.storage.ledger_ids())
    served.world.run(served.world.managed.orphaned_ledgers(0).look(candidates, schemas | kept))
    assert download(served) == CONTENTS
    assert served.get(ROOT) == ["words"]
