"""Settings of the load manager, from Pulsar's names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from magnetar.broker.load.settings import LoadSettings
from magnetar.broker.policies.dynamic import SettingRefused
from magnetar.config.cluster import ClusterSettings
from magnetar.config.settings import SettingsContradict, load
from magnetar.server.load_balancing import LinuxHost, LoadOptions, load_settings


def given(tmp_path: Path, text: str = "") -> ClusterSettings:
    path = tmp_path / "broker.conf"
    path.write_text(text, "utf-8")
    found = load(path, cluster=True).cluster
    assert found is not None
    return found


def test_without_a_file_pulsars_defaults_count(tmp_path: Path) -> None:
    assert load_settings(given(tmp_path)) == LoadSettings()


@pytest.mark.parametrize(
    "text",
    [
        "loadManagerClassName=org.apache.pulsar.broker.loadbalance.extensions.ExtensibleLoadManagerImpl",
        "loadManagerClassName=org.apache.pulsar.broker.loadbalance.impl.SimpleLoadManagerImpl",
        "loadBalancerLoadSheddingStrategy=org.apache.pulsar.broker.loadbalance.extensions.scheduler.TransferShedder",
        "loadBalancerLoadPlacementStrategy=Mine",
        "defaultNamespaceBundleSplitAlgorithm=in_halves",
        "supportedNamespaceBundleSplitAlgorithms=range_equally_divide,in_halves",
        "loadBalancerLoadPlacementStrategy=org.apache.pulsar.broker.loadbalance.impl.AvgShedder",
    ],
)
def test_what_there_is_not_is_refused_by_name(tmp_path: Path, text: str) -> None:
    with pytest.raises(SettingsContradict, match=re.split("[.=,]", text)[-1]):
        LoadOptions(given(tmp_path, text))


def test_a_file_counts(tmp_path: Path) -> None:
    package = "org.apache.pulsar.broker.loadbalance.impl"
    text = f"""
loadBalancerLoadSheddingStrategy={package}.AvgShedder
loadBalancerLoadPlacementStrategy={package}.AvgShedder
loadBalancerSheddingIntervalMinutes=2
loadBalancerBandwithInResourceWeight=0.25
loadBalancerBandwithOutResourceWeight=0.25
loadBalancerBandwidthOutResourceWeight=0.5
loadBalancerNamespaceBundleMaxBandwidthMbytes=1
loadBalancerOverrideBrokerNicSpeedGbps=10
defaultNamespaceBundleSplitAlgorithm=topic_count_equally_divide
supportedNamespaceBundleSplitAlgorithms=specified_positions_divide
"""
    settings = load_settings(given(tmp_path, text))
    assert (settings.shedder, settings.placement, settings.shedding_seconds) == (
        "AvgShedder",
        "AvgShedder",
        120,
    )
    assert (settings.weights.bandwidth_in, settings.weights.bandwidth_out) == (0.25, 0.5)
    assert settings.split.max_throughput == 1 << 20
    assert settings.report.nic_gbps == 10
    assert settings.split.algorithm == "topic_count_equally_divide"
    assert settings.split.supported == ("specified_positions_divide",)


def test_most_can_change_while_a_broker_runs(tmp_path: Path) -> None:
    options = LoadOptions(given(tmp_path, "loadBalancerSheddingEnabled=false"))
    change = {name: setting.apply for name, setting in options.dynamic.items()}
    assert "loadManagerClassName" not in change
    assert "loadBalancerLoadPlacementStrategy" not in change
    assert change["loadBalancerSheddingEnabled"]("true")
    assert options.now.shedding
    assert change["maxUnloadPercentage"]("0.5")
    assert options.now.shed.max_unload_share == 0.5
    assert not change["loadBalancerSheddingEnabled"]("perhaps"), "what cannot be used counts for nothing"
    assert options.now.shedding
    assert not change["loadBalancerLoadSheddingStrategy"]("Mine")
    with pytest.raises(SettingRefused, match="loadBalancerLoadSheddingStrategy=Mine"):
        options.dynamic["loadBalancerLoadSheddingStrategy"].check("Mine")
    assert change["loadBalancerSheddingEnabled"](None)
    assert not options.now.shedding
    assert options.now.shed.max_unload_share == 0.5, "what else was changed stays"


def test_the_machine_tells_of_itself() -> None:
    sample = LinuxHost(None).sample()
    assert sample.processor_seconds > 0
    assert sample.cores >= 1
    assert 0 < sample.resident_bytes < sample.memory_bytes
    assert LinuxHost(2.5).sample().nic_kbits == 2_500_000
