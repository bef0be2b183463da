from dataclasses import fields
from pathlib import Path

import pytest

from magnetar.config.cluster import ClusterSettings
from magnetar.config.settings import (
    ConfigurationError,
    Settings,
    attribute_name,
    default_settings,
    load,
)
from magnetar.config.table import SettingClass, cluster_settings_table, settings_table


def write(directory: Path, text: str) -> Path:
    path = directory / "broker.conf"
    path.write_text(text, "iso-8859-1")
    return path


def test_every_honoured_key_is_an_attribute_and_no_other() -> None:
    honoured = {
        attribute_name(key) for key, row in settings_table().items() if row.kind is SettingClass.HONOURED
    }
    assert {entry.name for entry in fields(Settings)} == honoured


def test_every_attribute_has_the_type_of_its_row() -> None:
    types = {"int": int, "long": int, "double": float, "bool": bool, "string": str}
    settings = default_settings()
    for key, row in settings_table().items():
        if row.kind is not SettingClass.HONOURED:
            continue
        value = getattr(settings, attribute_name(key))
        kind = row.type.removesuffix("?")
        expected = tuple if kind.startswith("list") else str if kind.startswith("enum") else types[kind]
        if value is None:
            assert (row.type[-1], row.default) == ("?", ""), key
        else:
            assert type(value) is expected, key


def test_every_default_and_every_default_of_pulsar_parses() -> None:
    for row in settings_table().values():
        row.parse(row.default)
        row.parse(row.pulsar)


def test_without_a_file_the_defaults_count() -> None:
    loaded = load(None)
    assert loaded.settings == default_settings()
    assert loaded.warnings == ()
    assert loaded.settings.bind_address == "127.0.0.1"
    assert loaded.settings.cache_size_bytes == 64 << 20
    assert loaded.settings.reads_in_flight_bytes == 32 << 20


def test_a_file_with_every_default_of_ours_starts_without_a_word(tmp_path: Path) -> None:
    text = "\n".join(f"{key}={row.default}" for key, row in settings_table().items())
    loaded = load(write(tmp_path, text))
    assert loaded.warnings == ()
    assert loaded.settings == default_settings()


def test_a_file_with_every_default_of_pulsar_wants_nothing_but_the_quorums(tmp_path: Path) -> None:
    table = settings_table()
    text = "\n".join(f"{key}={row.pulsar}" for key, row in table.items())
    quorums = {"managedLedgerDefaultWriteQuorum", "managedLedgerDefaultAckQuorum"}
    with pytest.raises(ConfigurationError) as caught:
        load(write(tmp_path, text))
    assert len(caught.value.problems) == 2
    loaded = load(tmp_path / "broker.conf", quorums)
    assert all("not honoured yet" in warning for warning in loaded.warnings)


def test_values_are_read(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "brokerServicePort=0\nallowAutoTopicCreation = FALSE\nmanagedLedgerDefaultMarkDeleteRateLimit=0.5\n"
        "subscriptionTypesEnabled=Shared, Exclusive\nallowAutoTopicCreationType=partitioned\n"
        "magnetarCacheSizeBytes=16384\nmanagedLedgerCacheSizeMB=\n",
    )
    settings = load(path).settings
    assert settings.broker_service_port == 0
    assert settings.allow_auto_topic_creation is False
    assert settings.managed_ledger_default_mark_delete_rate_limit == 0.5
    assert settings.subscription_types_enabled == ("Shared", "Exclusive")
    assert settings.allow_auto_topic_creation_type == "partitioned"
    assert settings.cache_size_bytes == 16384


def test_the_last_of_repeated_keys_counts(tmp_path: Path) -> None:
    path = write(tmp_path, "brokerServicePort=nonsense\nbrokerServicePort=7000\n")
    assert load(path).settings.broker_service_port == 7000


def test_the_command_line_wins(tmp_path: Path) -> None:
    path = write(tmp_path, "brokerServicePort=7000\n")
    assert load(path, overrides={"brokerServicePort": "0"}).settings.broker_service_port == 0


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("brokerServicePort=x", "a whole number, not 'x'"),
        ("brokerServicePort=65536", "a value from 0 to 65535, not '65536'"),
        ("keepAliveIntervalSeconds=0", "at least 1"),
        ("maxMessageSize=99999999999", "a whole number that fits into 32 bits"),
        ("allowAutoTopicCreation=yes", "true or false"),
        ("allowAutoTopicCreationType=both", "one of partitioned, non-partitioned"),
        ("subscriptionTypesEnabled=Sharded", "a list of Failover, Shared, Key_Shared, Exclusive"),
        ("managedLedgerCacheEvictionWatermark=1.5", "a value from 0 to 1"),
        ("managedLedgerCacheEvictionWatermark=nan", "a finite number"),
        ("managedLedgerCacheEvictionWatermark=much", "a number"),
        ("loadBalancerBrokerMaxTopics=many", "a whole number"),
        ("numIOThreads=two", "a whole number"),
    ],
)
def test_malformed_values_stop_the_start_with_file_and_line(tmp_path: Path, line: str, wanted: str) -> None:
    path = write(tmp_path, f"# one\n\n{line}\n")
    with pytest.raises(ConfigurationError) as caught:
        load(path)
    [problem] = caught.value.problems
    assert problem.startswith(f"{path}:3: {line.split('=')[0]} must be {wanted}")


GUARDED = [
    ("saslJaasServerSectionName", "Mine"),
    ("bookkeeperTLSClientAuthentication", "true"),
    ("httpRequestsLimitEnabled", "true"),
    ("openIDFallbackDiscoveryMode", "KUBERNETES_DISCOVER_PUBLIC_KEYS"),
    ("managedLedgerDigestType", "MAC"),
    ("managedLedgerDefaultWriteQuorum", "2"),
    ("brokerInterceptors", "mine"),
    ("metadataStoreUrl", "zk:localhost"),
]


@pytest.mark.parametrize(("key", "value"), GUARDED)
def test_a_promise_that_is_not_kept_stops_the_start(tmp_path: Path, key: str, value: str) -> None:
    path = write(tmp_path, f"#\n{key}={value}\n")
    with pytest.raises(ConfigurationError) as caught:
        load(path)
    [problem] = caught.value.problems
    assert problem.startswith(f"{path}:2: {key}")
    assert f"--accept-unhonoured {key}" in problem


@pytest.mark.parametrize(("key", "value"), GUARDED)
def test_an_accepted_one_is_a_warning(tmp_path: Path, key: str, value: str) -> None:
    loaded = load(write(tmp_path, f"{key}={value}\n"), [key])
    [warning] = loaded.warnings
    assert key in warning
    assert loaded.settings == default_settings()


def test_a_digest_that_promises_less_than_ours_is_fine(tmp_path: Path) -> None:
    assert load(write(tmp_path, "managedLedgerDigestType=CRC32\n")).warnings == ()


def test_all_problems_are_told_at_once(tmp_path: Path) -> None:
    path = write(tmp_path, "strictBookieAffinityEnabled=true\nbrokerServicePort=x\n")
    with pytest.raises(ConfigurationError) as caught:
        load(path, ["noSuchKey"])
    assert len(caught.value.problems) == 3


def test_secrets_are_never_shown(tmp_path: Path) -> None:
    path = write(tmp_path, "tlsKeyStorePassword=hush\nbookkeeperClientThrottleValue=x\n")
    with pytest.raises(ConfigurationError) as caught:
        load(path)
    assert "hush" not in str(caught.value)
    loaded = load(write(tmp_path, "tlsKeyStorePassword=hush\n"))
    assert "hush" not in repr(loaded)
    assert "hush" not in repr(loaded.warnings)
    assert loaded.texts["tlsKeyStorePassword"] == "*****"


def test_other_keys_not_honoured_yet_are_one_warning_each(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "strictlyVerifySubscriptionName=true\nloadBalancerSheddingEnabled=true\nmaxConsumerMetadataSize=60",
    )
    warnings = load(path).warnings
    assert [warning.split(" ")[1] for warning in warnings] == [
        "maxConsumerMetadataSize=60",
        "strictlyVerifySubscriptionName=true",
    ]


def test_unknown_keys_are_named_once(tmp_path: Path) -> None:
    path = write(tmp_path, "what=1\njournalDirectory=/x\nwhat=2\never=3\n")
    [warning] = load(path).warnings
    assert warning == f"{path}: unknown settings, ignored: what (line 1), ever (line 4)"


def test_settings_must_fit_together(tmp_path: Path) -> None:
    path = write(tmp_path, "managedLedgerMinLedgerRolloverTimeMinutes=300\n")
    with pytest.raises(ConfigurationError, match=r"broker\.conf:1: managedLedgerMinLedger"):
        load(path)
    path = write(tmp_path, "maxNumPartitionsPerPartitionedTopic=2\ndefaultNumPartitions=3\n")
    with pytest.raises(ConfigurationError, match=r"broker\.conf:2: defaultNumPartitions 3 must not exceed"):
        load(path)
    path = write(tmp_path, "defaultNumPartitions=10001\n")
    with pytest.raises(ConfigurationError, match="10001 must not exceed magnetarMaxPartitionsPerTopic 10000"):
        load(path)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"none\.conf cannot be read: No such file"):
        load(tmp_path / "none.conf")
    with pytest.raises(ConfigurationError, match=r"broker\.conf:1: "):
        load(write(tmp_path, "a=\\uzzzz"))


def test_names_turn_into_attributes() -> None:
    assert attribute_name("managedLedgerCacheSizeMB") == "managed_ledger_cache_size_mb"
    assert attribute_name("maxMessagePublishBufferSizeInMB") == "max_message_publish_buffer_size_in_mb"
    assert attribute_name("brokerShutdownTimeoutMs") == "broker_shutdown_timeout_ms"


def test_settings_of_expiry_and_quotas() -> None:
    assert default_settings().expiry_check_seconds == 300
    assert default_settings(message_expiry_check_interval_in_minutes=2).expiry_check_seconds == 120
    assert default_settings(magnetar_message_expiry_check_interval_seconds=7).expiry_check_seconds == 7
    assert default_settings().backlog_quota_bytes == -1
    assert default_settings(backlog_quota_default_limit_bytes=9).backlog_quota_bytes == 9
    # The old unit counts first, as in Pulsar.
    both = default_settings(backlog_quota_default_limit_bytes=9, backlog_quota_default_limit_gb=0.5)
    assert both.backlog_quota_bytes == 1 << 29


def test_every_key_that_a_cluster_honours_is_an_attribute_and_no_other() -> None:
    alone = settings_table()
    rows = [row for row in cluster_settings_table().values() if row is not alone[row.name]]
    honoured = {attribute_name(row.name) for row in rows if row.kind is SettingClass.HONOURED}
    assert {entry.name for entry in fields(ClusterSettings)} == honoured


def test_a_file_with_every_default_of_pulsar_starts_in_a_cluster(tmp_path: Path) -> None:
    text = "\n".join(f"{key}={row.pulsar}" for key, row in settings_table().items())
    loaded = load(write(tmp_path, text), cluster=True)
    assert loaded.cluster is not None
    assert loaded.cluster.managed_ledger_default_write_quorum == 2
    assert loaded.cluster.managed_ledger_digest_type == "CRC32C"
    assert loaded.cluster.session_timeout_ms == 30_000
    assert not [text for text in loaded.warnings if "ookkeeper" in text or "metadata" in text]


@pytest.mark.parametrize(
    ("lines", "wanted"),
    [
        (
            "managedLedgerDefaultWriteQuorum=3",
            "managedLedgerDefaultWriteQuorum 3 must not exceed managedLedgerDefaultEnsembleSize 2",
        ),
        (
            "managedLedgerDefaultEnsembleSize=1",
            "managedLedgerDefaultWriteQuorum 2 must not exceed managedLedgerDefaultEnsembleSize 1",
        ),
        (
            "managedLedgerDefaultAckQuorum=3",
            "managedLedgerDefaultAckQuorum 3 must not exceed managedLedgerDefaultWriteQuorum 2",
        ),
        ("strictBookieAffinityEnabled=true", "strictBookieAffinityEnabled=true is not honoured yet"),
    ],
)
def test_what_contradicts_in_a_cluster_stops_the_start_by_name(
    tmp_path: Path, lines: str, wanted: str
) -> None:
    path = write(tmp_path, f"metadataStoreUrl=zk:here\n{lines}\n")
    with pytest.raises(ConfigurationError) as caught:
        load(path, cluster=True)
    [problem] = caught.value.problems
    assert problem.startswith(f"{path}:2: {wanted}")


def test_older_names_of_the_metadata_stores_count_where_the_newer_ones_say_nothing(tmp_path: Path) -> None:
    path = write(tmp_path, "zookeeperServers=old:2181\nconfigurationStoreServers=shared:2181\n")
    settings = load(path, cluster=True).cluster
    assert settings is not None
    assert (settings.local_store, settings.configuration_store) == ("old:2181", "shared:2181")
    path = write(
        tmp_path,
        "zookeeperServers=old:2181\nmetadataStoreUrl=zk:new\nglobalZookeeperServers=oldest\n"
        "configurationMetadataStoreUrl=zk:newest\nzooKeeperSessionTimeoutMillis=7000\n",
    )
    settings = load(path, cluster=True).cluster
    assert settings is not None
    assert (settings.local_store, settings.configuration_store) == ("zk:new", "zk:newest")
    assert settings.session_timeout_ms == 7000


def test_a_password_of_ledgers_is_not_shown(tmp_path: Path) -> None:
    loaded = load(write(tmp_path, "managedLedgerPassword=hidden\n"), cluster=True)
    assert loaded.cluster is not None
    assert loaded.cluster.managed_ledger_password == "hidden"
    assert "hidden" not in repr(loaded)
    assert loaded.texts["managedLedgerPassword"] == "*****"
