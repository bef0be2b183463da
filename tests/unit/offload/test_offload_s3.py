"""Driver ``aws-s3`` against a store that works, fails, lies and forgets."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

import pytest
from faulty_object_store import BUCKET, Fault, ObjectStore, object_store
from offloaded import KEY, cache, key_of, objects, offload, read_all, record_of, recorded

from magnetar.ledger.interface import NoSuchEntry
from magnetar.offload import driver_for, driver_of
from magnetar.offload.interface import (
    FoundObject,
    OffloadDriver,
    OffloadedLedgerDamaged,
    OffloadedLedgerMissing,
    OffloadError,
    OffloadMisconfigured,
    OffloadRefused,
    OffloadUnavailable,
)
from magnetar.offload.s3 import S3Store

NAME = f"{KEY.uuid}-ledger-{KEY.ledger_id}"
SMALL = [b"m%d" % number for number in range(100)]


@pytest.fixture(scope="module")
def running() -> Iterator[ObjectStore]:
    with object_store() as store:
        yield store


@pytest.fixture
def store(running: ObjectStore) -> Iterator[ObjectStore]:
    running.planned.clear()
    driver = s3(running)
    driver.discard(KEY)
    driver.close()
    running.seen.clear()
    yield running
    running.planned.clear()


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library tries again at once."""
    monkeypatch.setattr("botocore.endpoint.time.sleep", lambda _seconds: None)


def s3(store: ObjectStore, **more: str) -> OffloadDriver:
    return driver_for("aws-s3", store.settings(**more), cache())


def large() -> list[bytes]:
    """Returns entries of two blocks and a bit."""
    seeded = random.Random(7)
    return [
        b"m" + seeded.randbytes(size) for size in [100, 2_000_000, 4_000_000, 20, 3_000_000, *[30_000] * 300]
    ]


def test_a_ledger_is_written_read_and_deleted(store: ObjectStore) -> None:
    entries = large()
    driver = s3(store)
    writer = driver.begin(KEY, record_of(entries))
    assert writer.append(0, entries[:3]) == 0
    assert writer.append(3, entries[3:]) > 0
    stored = writer.finish()
    assert (stored.entries, stored.entry_bytes, stored.blocks) == (len(entries), sum(map(len, entries)), 3)
    assert stored.stored_bytes == len(store.get(NAME)) + len(store.get(f"{NAME}-index"))
    assert store.metadata(NAME) == {
        "s3managedledgeroffloaderformatversion": "1",
        "role": "data",
        "managedledgername": KEY.managed_ledger,
    }
    recorded_metadata = driver.metadata
    assert recorded_metadata["managedLedgerOffloadDriver"] == "AWS_S3"
    elsewhere = store.settings(s3ManagedLedgerOffloadBucket="another")
    reader = driver_of("aws-s3", recorded_metadata, elsewhere, cache()).open(KEY)
    assert read_all(reader) == entries
    assert read_all(reader, 1) == entries
    with pytest.raises(NoSuchEntry, match="has entries 0 to 304"):
        reader.read(305, 305, 1)
    reader.close()
    driver.delete(KEY)
    driver.delete(KEY)
    assert NAME not in store.names()
    with pytest.raises(OffloadedLedgerMissing):
        driver.open(KEY)
    driver.close()


def test_a_bucket_is_listed_in_parts_with_the_metadata_of_its_objects(store: ObjectStore) -> None:
    driver = s3(store, pulsarClusterName="mine")
    offload(driver, KEY, [b"entry"])
    others = [f"00000000-0000-0000-0000-{number:012}-ledger-{number}" for number in range(50)]
    for name in (*others, "notes.txt", "-ledger-7", "x-ledger-", "x-ledger-7-index-old"):
        store.put(name, b"other")
    found: list[FoundObject] = []
    after, parts = "", 0
    while after or not parts:
        some, after = driver.listed(after)
        found += some
        parts += 1
    assert parts == 3
    assert [each.name for each in found] == sorted([*others, NAME, f"{NAME}-index"])
    data = next(each for each in found if each.name == NAME)
    assert (data.uuid, data.ledger_id, data.size) == (str(KEY.uuid), KEY.ledger_id, len(store.get(NAME)))
    assert data.uri == f"{store.endpoint}/{BUCKET}/{NAME}"
    assert data.metadata == {
        "s3managedledgeroffloaderformatversion": "1",
        "role": "data",
        "managedledgername": KEY.managed_ledger,
        "pulsarclustername": "mine",
    }
    assert abs(data.modified_ms / 1000 - time.time()) < 60


@pytest.mark.parametrize("name", objects())
def test_objects_of_pulsar_are_read(store: ObjectStore, name: str) -> None:
    data, index = recorded(name)
    store.put(name, data)
    store.put(f"{name}-index", index)
    driver = s3(store)
    reader = driver.open(key_of(name))
    entries = read_all(reader)
    assert sum(map(len, entries)) == reader.length
    driver.delete(key_of(name))


def test_reading_anywhere_costs_few_requests(store: ObjectStore) -> None:
    entries = large()
    offload(s3(store), KEY, entries)
    driver = s3(store)
    for entry_id in (304, 0, 150, 2):
        reader = driver.open(KEY)
        (run,) = reader.read(entry_id, entry_id, 1)
        assert run.entry(0) == entries[entry_id]
    before = len(store.seen)
    assert read_all(driver.open(KEY)) == entries
    assert len(store.seen) - before < 20
    assert not [path for method, path in store.seen if method == "GET" and "list-type" in path]


def test_an_interrupted_attempt_is_discarded_by_its_name(store: ObjectStore) -> None:
    driver = s3(store)
    entries = large()
    writer = driver.begin(KEY, record_of(entries))
    writer.append(0, entries)
    neighbour = KEY._replace(ledger_id=70)
    other = driver.begin(neighbour, record_of(entries))
    assert writer.upload_id
    assert writer.upload_id in store.names()
    driver.discard(KEY)
    assert writer.upload_id not in store.names()
    assert other.upload_id in store.names()
    driver.discard(neighbour, other.upload_id)
    assert other.upload_id not in store.names()
    with pytest.raises(OffloadError):
        writer.finish()
    writer.abort()


def test_objects_are_deleted_where_uploads_may_not_be_listed(store: ObjectStore) -> None:
    driver = s3(store)
    offload(driver, KEY, SMALL)
    store.plan(Fault.FORBIDDEN, "GET", "uploads")
    with pytest.raises(OffloadRefused):
        driver.discard(KEY)
    assert NAME not in store.names()


def test_a_long_name_is_left_out_of_the_metadata(store: ObjectStore) -> None:
    key = KEY._replace(managed_ledger="public/default/persistent/" + "x" * 2000)
    driver = s3(store)
    offload(driver, key, SMALL)
    assert store.metadata(NAME) == {"s3managedledgeroffloaderformatversion": "1", "role": "data"}
    assert read_all(driver.open(key)) == SMALL


@pytest.mark.parametrize("fault", [Fault.RESET, Fault.LOST, Fault.ERROR, Fault.BUSY])
@pytest.mark.parametrize(
    ("method", "text"), [("POST", "?uploads"), ("PUT", "partNumber"), ("POST", "uploadId"), ("PUT", "-index")]
)
def test_requests_that_fail_twice_are_repeated(
    store: ObjectStore, fault: Fault, method: str, text: str
) -> None:
    store.plan(fault, method, text, 2)
    driver = s3(store)
    offload(driver, KEY, SMALL)
    assert read_all(driver.open(KEY)) == SMALL
    driver.discard(KEY)
    assert NAME not in store.names()


@pytest.mark.parametrize("fault", [Fault.RESET, Fault.LOST, Fault.ERROR, Fault.BUSY])
@pytest.mark.parametrize("text", ["partNumber", "-index"])
def test_requests_that_always_fail_end_the_attempt(store: ObjectStore, fault: Fault, text: str) -> None:
    store.plan(fault, "PUT", text)
    driver = s3(store)
    writer = driver.begin(KEY, record_of(SMALL))
    writer.append(0, SMALL)
    with pytest.raises(OffloadUnavailable) as failed:
        writer.finish()
    assert "test-secret" not in str(failed.value)
    store.planned.clear()
    writer.abort()
    writer.abort()
    assert NAME not in store.names()


@pytest.mark.parametrize("fault", [Fault.RESET, Fault.ERROR, Fault.CUT])
def test_reads_that_fail_say_so_and_work_later(store: ObjectStore, fault: Fault) -> None:
    driver = s3(store)
    offload(driver, KEY, SMALL)
    reader = driver.open(KEY)
    store.plan(fault, "GET")
    with pytest.raises(OffloadUnavailable, match=NAME):
        reader.read(0, 99, 1000)
    with pytest.raises(OffloadUnavailable, match=NAME):
        driver.open(KEY)
    store.planned.clear()
    assert read_all(reader) == SMALL


def test_slow_answers_are_complete(store: ObjectStore) -> None:
    driver = s3(store)
    store.plan(Fault.SLOW, "GET")
    entries = large()
    offload(driver, KEY, entries)
    assert read_all(driver.open(KEY)) == entries


def test_refused_credentials_are_told_without_the_secret(store: ObjectStore) -> None:
    for method in ("POST", "GET", "PUT", "DELETE", "HEAD"):
        store.plan(Fault.FORBIDDEN, method)
    driver = s3(store)
    for request in (
        lambda: driver.begin(KEY, record_of(SMALL)),
        lambda: driver.open(KEY),
        lambda: driver.delete(KEY),
    ):
        with pytest.raises(OffloadRefused, match=r"InvalidAccessKeyId.*check the credentials") as refused:
            request()
        assert "test-secret" not in str(refused.value)
    assert "test-secret" not in repr(driver)


def test_missing_credentials_are_told(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, "/nonexistent")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    nothing = {"s3ManagedLedgerOffloadCredentialId": "", "s3ManagedLedgerOffloadCredentialSecret": ""}
    for role in ({}, ROLE):
        with pytest.raises(OffloadRefused, match="set s3ManagedLedgerOffloadCredentialId"):
            s3(store, **nothing, **role).open(KEY)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test-key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "from-environment")
    with pytest.raises(OffloadedLedgerMissing):
        s3(store, **nothing).open(KEY)


ROLE = {"s3ManagedLedgerOffloadRole": "arn:aws:iam::123456789012:role/offload"}


def test_a_role_is_assumed_once_with_the_access_key(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", store.endpoint)
    driver = s3(store, **ROLE)
    store.access_keys.clear()
    offload(driver, KEY, SMALL)
    assert read_all(driver.open(KEY)) == SMALL
    assert store.seen[0] == ("POST", "/")
    assert store.access_keys[0] == "test-key"
    [temporary] = set(store.access_keys[1:])
    assert temporary.startswith("ASIA")
    driver.delete(KEY)


def test_a_role_that_cannot_be_assumed_is_told(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", store.endpoint)
    store.plan(Fault.FORBIDDEN, "POST")
    with pytest.raises(OffloadRefused, match=r"answers 403 .*check the credentials") as refused:
        s3(store, **ROLE).open(KEY)
    assert "test-secret" not in str(refused.value)
    store.planned.clear()
    store.plan(Fault.ERROR, "POST")
    with pytest.raises(OffloadUnavailable, match="answers 500 "):
        s3(store, **ROLE).open(KEY)


def test_a_missing_bucket_is_told(store: ObjectStore) -> None:
    with pytest.raises(OffloadMisconfigured, match="create the bucket"):
        s3(store, s3ManagedLedgerOffloadBucket="nowhere").begin(KEY, record_of(SMALL))


def test_a_store_that_is_away_is_unavailable(store: ObjectStore) -> None:
    with pytest.raises(OffloadUnavailable):
        s3(store, s3ManagedLedgerOffloadServiceEndpoint="http://127.0.0.1:1").open(KEY)


def test_foreign_and_damaged_objects_are_refused(store: ObjectStore) -> None:
    offload(s3(store), KEY, SMALL)
    data, index = store.get(NAME), store.get(f"{NAME}-index")

    def refused(match: str) -> None:
        with pytest.raises(OffloadedLedgerDamaged, match=match):
            read_all(s3(store).open(KEY))

    store.put(NAME, data, version="2")
    refused("expected metadata s3managedledgeroffloaderformatversion=1, found '2'")
    store.put(NAME, data[:200])
    refused("at byte 128: expected .* bytes before the end, found 72 bytes")
    store.put(NAME, data[:100])
    refused("at byte 0: expected 128 bytes before the end, found 100 bytes")
    store.put(NAME, data[:28] + bytes(100) + data[128:140] + data[141:] + b"x")
    refused("expected entry 1 within")
    store.put(NAME, recorded(objects()[0])[0])
    refused(NAME)
    store.put(NAME, data)
    store.put(f"{NAME}-index", index[:-1])
    refused("length of the index")
    store.put(f"{NAME}-index", b"")
    refused("rest of the index")
    store.put(f"{NAME}-index", index)
    assert read_all(s3(store).open(KEY)) == SMALL


def test_a_store_that_changes_the_data_is_noticed(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    complete = S3Store.complete_upload

    def damage(bucket: S3Store, name: str, upload_id: str, etags: list[str]) -> None:
        complete(bucket, name, upload_id, etags)
        data = store.get(name)
        store.put(name, data[:-1] + b"?")

    monkeypatch.setattr(S3Store, "complete_upload", damage)
    writer = s3(store).begin(KEY, record_of(SMALL))
    writer.append(0, SMALL)
    with pytest.raises(OffloadedLedgerDamaged, match="expected a block with MD5"):
        writer.finish()
    writer.abort()
    assert NAME not in store.names()


def test_a_store_with_other_entity_tags_is_read(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("magnetar.offload.object_store.tag_of_parts", lambda _digests: "another")
    driver = s3(store)
    entries = large()
    offload(driver, KEY, entries)
    assert read_all(driver.open(KEY)) == entries


def test_errors_of_the_caller_are_no_errors_of_the_store(store: ObjectStore) -> None:
    driver = s3(store)
    writer = driver.begin(KEY, record_of(SMALL))
    with pytest.raises(ValueError, match="the next entry must be 0, not 5"):
        writer.append(5, SMALL)
    with pytest.raises(ValueError, match="0 entries with 0 bytes") as wrong:
        writer.finish()
    assert not isinstance(wrong.value, OffloadError)
    writer.abort()
