"""The cache of pieces, and the settings of drivers."""

from __future__ import annotations

from array import array

import pytest
from offloaded import cache

from magnetar.ledger.interface import EntryRun
from magnetar.offload import driver_for, driver_of
from magnetar.offload.cache import Piece
from magnetar.offload.interface import OffloadMisconfigured
from magnetar.offload.settings import s3_settings

STORE = {"s3ManagedLedgerOffloadBucket": "b", "s3ManagedLedgerOffloadRegion": "r"}


def piece(size: int) -> Piece:
    return Piece(EntryRun(1, 0, 1, bytes(size), array("q", [0]), array("q", [size])), size, 0)


def test_the_piece_that_was_used_last_stays() -> None:
    kept = cache(100)
    kept.put("a", piece(40))
    kept.put("b", piece(40))
    assert kept.get("a") is not None
    kept.put("c", piece(40))
    assert kept.get("b") is None
    assert kept.get("a") is not None
    assert (kept.size, kept.hits, kept.misses) == (80, 2, 1)
    kept.put("a", piece(10))
    assert kept.size == 50
    kept.put("d", piece(101))
    assert (kept.size, kept.get("d")) == (0, None)


def test_a_cache_of_less_than_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="0 or more bytes, not -1"):
        cache(-1)


def test_names_with_s3_win() -> None:
    found = s3_settings(
        {
            **STORE,
            "managedLedgerOffloadBucket": "other",
            "managedLedgerOffloadMaxBlockSizeInBytes": "6000000",
            "s3ManagedLedgerOffloadCredentialId": "id",
            "s3ManagedLedgerOffloadCredentialSecret": "hidden",
        }
    )
    assert (found.bucket, found.block_bytes, found.read_bytes) == ("b", 6_000_000, 1 << 20)
    assert "hidden" not in repr(found)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"s3ManagedLedgerOffloadBucket": "b"}, "needs a region or an endpoint"),
        ({"s3ManagedLedgerOffloadRegion": "r"}, "needs a bucket"),
        ({**STORE, "s3ManagedLedgerOffloadCredentialId": "id"}, "go together"),
        ({**STORE, "s3ManagedLedgerOffloadServiceEndpoint": "http://me:word@host"}, "must not contain"),
        ({**STORE, "s3ManagedLedgerOffloadServiceEndpoint": "host"}, "ServiceEndpoint"),
        ({**STORE, "s3ManagedLedgerOffloadMaxBlockSizeInBytes": "5000000"}, "from 5242880"),
        ({**STORE, "managedLedgerOffloadReadBufferSizeInBytes": "many"}, "ReadBufferSizeInBytes='many'"),
    ],
)
def test_invalid_settings_are_refused(values: dict[str, str], expected: str) -> None:
    with pytest.raises(OffloadMisconfigured, match=expected) as refused:
        driver_for("AWS-S3", values, cache())
    assert "word" not in str(refused.value)


AMAZON = {"managedLedgerOffloadDriver": "AWS_S3", "bucket": "old", "region": "eu", "serviceEndpoint": ""}
OTHER = {**AMAZON, "region": "", "serviceEndpoint": "http://old:9000"}


@pytest.mark.parametrize("name", ["aws-s3", "S3"])
@pytest.mark.parametrize("recorded", [AMAZON, OTHER])
@pytest.mark.parametrize("prefix", ["s3M", "m"])
def test_a_recorded_place_is_not_mixed_with_the_configured_one(
    name: str, recorded: dict[str, str], prefix: str
) -> None:
    values = {
        f"{prefix}anagedLedgerOffload{each}": value
        for each, value in (("Bucket", "new"), ("Region", "us"), ("ServiceEndpoint", "http://new:9000"))
    }
    driver = driver_of(name, recorded, values, cache())
    assert dict(driver.metadata) == recorded
    driver.close()


def test_what_the_record_of_a_ledger_leaves_out_is_configured() -> None:
    driver = driver_of("aws-s3", {"bucket": "old"}, STORE, cache())
    assert (driver.metadata["bucket"], driver.metadata["region"]) == ("old", "r")
    driver.close()


@pytest.mark.parametrize("name", ["google-cloud-storage", "azureblob", "aliyun-oss"])
def test_ledgers_of_other_drivers_are_refused_by_name(name: str) -> None:
    with pytest.raises(OffloadMisconfigured, match=f"Pulsar's driver {name} is not supported"):
        driver_of(name, AMAZON, STORE, cache())


@pytest.mark.parametrize("name", ["google-cloud-storage", "azureblob", "aliyun-oss", "transient", "S3"])
def test_other_drivers_of_pulsar_are_refused_by_name(name: str) -> None:
    with pytest.raises(OffloadMisconfigured, match=f"Pulsar's driver {name} is not supported; use aws-s3"):
        driver_for(name.lower(), {}, cache())


def test_unknown_drivers_are_refused() -> None:
    with pytest.raises(OffloadMisconfigured, match="there is no driver 'tape'"):
        driver_for("tape", {}, cache())
