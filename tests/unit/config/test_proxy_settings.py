"""A proxy is started by Pulsar's own proxy.conf."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from magnetar.config.proxy import ProxySettings, ReverseProxy, load_proxy
from magnetar.config.reading import ConfigurationError, attribute_name
from magnetar.config.table import SettingClass, proxy_settings_table


def written(folder: Path, text: str) -> Path:
    path = folder / "proxy.conf"
    path.write_text(text)
    return path


def test_every_honoured_key_is_an_attribute_and_no_other() -> None:
    honoured = {
        attribute_name(key)
        for key, row in proxy_settings_table().items()
        if row.kind is SettingClass.HONOURED
    }
    assert honoured == {each.name for each in fields(ProxySettings)}


def test_a_file_with_every_default_of_pulsar_starts_without_a_word(tmp_path: Path) -> None:
    text = "".join(f"{key}={row.pulsar}\n" for key, row in proxy_settings_table().items())
    loaded = load_proxy(written(tmp_path, text))
    assert loaded.warnings == ()
    assert (loaded.settings.service_port, loaded.settings.web_service_port) == (6650, 8080)
    assert loaded.settings.bind_address == "0.0.0.0"
    assert loaded.settings.broker_proxy_allowed_target_ports == "6650,6651"


def test_a_port_that_is_given_as_empty_is_none_where_there_is_one_with_tls(tmp_path: Path) -> None:
    loaded = load_proxy(written(tmp_path, "servicePort=\nservicePortTls=6651\nwebServicePort=\n"))
    assert loaded.settings.service_port is None
    assert loaded.settings.web_service_port == 8080


def test_reverse_proxies_have_a_path_and_a_target(tmp_path: Path) -> None:
    text = "httpReverseProxy.a.path=/a/\nhttpReverseProxy.a.proxyTo=http://localhost:81/b/\n"
    loaded = load_proxy(written(tmp_path, text))
    assert loaded.reverse_proxies == (ReverseProxy("/a", "http://localhost:81/b"),)
    assert loaded.warnings == ()


@pytest.mark.parametrize(
    "text",
    [
        "httpReverseProxy.a.path=/a",
        "httpReverseProxy.a.path=a\nhttpReverseProxy.a.proxyTo=http://x",
        "httpReverseProxy.a.path=/a\nhttpReverseProxy.a.proxyTo=ftp://x",
        "servicePort=65536",
        "tlsEnabledWithBroker=perhaps",
    ],
)
def test_what_cannot_be_used_stops_the_start(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigurationError):
        load_proxy(written(tmp_path, text))


def test_what_is_not_honoured_is_a_warning_and_what_nobody_knows_is_named(tmp_path: Path) -> None:
    warnings = load_proxy(written(tmp_path, "proxyLogLevel=2\nwhatever=1\n")).warnings
    assert any("proxyLogLevel=2" in each for each in warnings)
    assert any("whatever" in each for each in warnings)


def test_secrets_are_not_shown(tmp_path: Path) -> None:
    loaded = load_proxy(written(tmp_path, "brokerClientAuthenticationParameters=token:abc\n"))
    assert "abc" not in repr(loaded)
