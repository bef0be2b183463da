"""The settings of tiered storage: what a start refuses, and what counts for namespaces and topics."""

from __future__ import annotations

from pathlib import Path

import pytest

from magnetar.broker.policies.offload import check_offload, of_namespace, offload_policy
from magnetar.config.reading import ConfigurationError
from magnetar.config.settings import SettingsContradict, default_settings, load
from magnetar.errors import PreconditionFailed
from magnetar.managed_ledger.settings import OffloadPolicy
from magnetar.offload.settings import s3_settings
from magnetar.server.settings import offload_fields

PROFILE = """<configuration>
  <property><name>fs.defaultFS</name><value>{place}</value></property>
</configuration>
"""


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"driver": "azureblob"}, "Pulsar's driver azureblob is not supported"),
        ({"driver": "filesystem"}, "set fileSystemURI"),
        ({"driver": "FileSystem", "uri": "hdfs://name:8020/x"}, "hdfs://name is not supported"),
        ({"driver": "filesystem", "uri": "relative"}, "must be an absolute path"),
        ({"driver": "filesystem", "place": "hdfs://name:8020"}, "fs.defaultFS: hdfs://name is not supported"),
        ({"driver": "aws-s3"}, "needs a region or an endpoint"),
    ],
)
def test_a_start_refuses_drivers_that_could_not_offload(
    tmp_path: Path, settings: dict[str, str], expected: str
) -> None:
    profile = tmp_path / "core-site.xml"
    profile.write_text(PROFILE.format(place=settings.get("place", "")))
    with pytest.raises(SettingsContradict, match=expected):
        offload_fields(
            default_settings(
                managed_ledger_offload_driver=settings["driver"],
                file_system_uri=settings.get("uri", ""),
                file_system_profile_path=str(profile) if "place" in settings else "",
            )
        )


def test_a_profile_names_the_place(tmp_path: Path) -> None:
    profile = tmp_path / "core-site.xml"
    profile.write_text(PROFILE.format(place=f"file://{tmp_path}"))
    found = offload_fields(
        default_settings(
            managed_ledger_offload_driver="filesystem", file_system_profile_path=f"file://{profile}"
        )
    )
    assert offload_policy(found) is not None


def test_namespaces_that_name_a_driver_have_the_rest_from_the_broker() -> None:
    """As by Pulsar, also if the broker has no driver."""
    settings = default_settings(
        managed_ledger_offload_auto_trigger_size_threshold_bytes=5,
        managed_ledger_offload_deletion_lag_ms=6,
        file_system_uri="file:///tiered",
    )
    above = offload_fields(settings)
    assert offload_policy(above) is None
    found = of_namespace(above, {"offload_policies": {"managedLedgerOffloadDriver": "filesystem"}})
    check_offload(found)
    policy = offload_policy(found)
    assert policy is not None
    assert (policy.threshold_bytes, policy.deletion_lag_ms) == (5, 6)
    assert ("fileSystemURI", "file:///tiered") in policy.storage.values
    with pytest.raises(PreconditionFailed, match="hdfs://name is not supported"):
        check_offload({**found, "fileSystemURI": "hdfs://name/x"})


def policy_of(folder: Path, **given: object) -> OffloadPolicy:
    """The broker's policy with a file of these settings."""
    path = folder / "broker.conf"
    path.write_text("".join(f"{name}={value}\n" for name, value in given.items()))
    loaded = load(path)
    assert loaded.warnings == ()
    policy = offload_policy(offload_fields(loaded.settings))
    assert policy is not None
    return policy


GENERAL = {
    "managedLedgerOffloadDriver": "aws-s3",
    "managedLedgerOffloadBucket": "general",
    "managedLedgerOffloadRegion": "eu-central-1",
    "managedLedgerOffloadServiceEndpoint": "http://general:9000",
    "managedLedgerOffloadMaxBlockSizeInBytes": 6 << 20,
    "managedLedgerOffloadReadBufferSizeInBytes": 8192,
    "managedLedgerOffloadThresholdInBytes": 1,
    "managedLedgerOffloadDeletionLagInMillis": 2,
    "managedLedgerOffloadedReadPriority": "bookkeeper-first",
}
OWN = {
    "s3ManagedLedgerOffloadBucket": "own",
    "s3ManagedLedgerOffloadRegion": "us-east-1",
    "s3ManagedLedgerOffloadServiceEndpoint": "http://own:9000",
    "s3ManagedLedgerOffloadMaxBlockSizeInBytes": 7 << 20,
    "s3ManagedLedgerOffloadReadBufferSizeInBytes": 16384,
    "managedLedgerOffloadAutoTriggerSizeThresholdBytes": 3,
    "managedLedgerOffloadDeletionLagMs": 4,
    "managedLedgerDataReadPriority": "tiered-storage-first",
}


def test_general_names_count_where_the_own_ones_are_not_set(tmp_path: Path) -> None:
    policy = policy_of(tmp_path, **GENERAL)
    found = s3_settings(dict(policy.storage.values))
    assert (found.bucket, found.region, found.endpoint) == ("general", "eu-central-1", "http://general:9000")
    assert (found.block_bytes, found.read_bytes) == (6 << 20, 8192)
    assert (policy.threshold_bytes, policy.deletion_lag_ms, policy.tiered_first) == (1, 2, False)


def test_the_names_of_policies_count_before_those_of_files_and_names_of_drivers_before_general_ones(
    tmp_path: Path,
) -> None:
    """As in Pulsar."""
    policy = policy_of(tmp_path, **GENERAL, **OWN)
    found = s3_settings(dict(policy.storage.values))
    assert (found.bucket, found.region, found.endpoint) == ("own", "us-east-1", "http://own:9000")
    assert (found.block_bytes, found.read_bytes) == (7 << 20, 16384)
    assert (policy.threshold_bytes, policy.deletion_lag_ms, policy.tiered_first) == (1, 2, False)
    general = ("ThresholdInBytes", "DeletionLagInMillis", "edReadPriority")
    left = {name: each for name, each in GENERAL.items() if not name.endswith(general)}
    policy = policy_of(tmp_path, **left, **OWN)
    assert (policy.threshold_bytes, policy.deletion_lag_ms, policy.tiered_first) == (3, 4, True)


@pytest.mark.parametrize("name", ["Bucket", "Region", "ServiceAccountKeyFile"])
def test_settings_of_google_are_refused_by_name(tmp_path: Path, name: str) -> None:
    path = tmp_path / "broker.conf"
    path.write_text(f"gcsManagedLedgerOffload{name}=x\n")
    with pytest.raises(ConfigurationError, match=f"gcsManagedLedgerOffload{name}=x .*google-cloud-storage"):
        load(path)
    path.write_text(f"gcsManagedLedgerOffload{name}=\ngcsManagedLedgerOffloadMaxBlockSizeInBytes=67108864\n")
    assert load(path).warnings == ()
