"""The settings of tiered storage: what a start refuses, and what counts for namespaces and topics."""

from __future__ import annotations

from pathlib import Path

import pytest

from magnetar.broker.policies.offload import check_offload, of_namespace, offload_policy
from magnetar.config.settings import SettingsContradict, default_settings
from magnetar.errors import PreconditionFailed
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
        ({"driver": "filesystem", "uri": "relative"}, "no absolute path"),
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
