"""WebSockets without a broker are served by Pulsar's own websocket.conf."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from magnetar.config.reading import ConfigurationError, attribute_name
from magnetar.config.table import SettingClass, websocket_settings_table
from magnetar.config.websocket import WebSocketProcessSettings, load_websockets


def written(folder: Path, text: str) -> Path:
    path = folder / "websocket.conf"
    path.write_text(text)
    return path


def test_a_file_with_pulsars_defaults_is_taken_without_a_word(tmp_path: Path) -> None:
    text = "".join(f"{key}={row.pulsar}\n" for key, row in websocket_settings_table().items())
    loaded = load_websockets(written(tmp_path, text))
    assert loaded.warnings == ()
    assert loaded.settings.bind_address == "0.0.0.0"
    assert loaded.settings.web_socket_max_text_frame_size == 1 << 20


def test_older_names_of_what_clusters_share(tmp_path: Path) -> None:
    text = "globalZookeeperServers=a:1\nzooKeeperSessionTimeoutMillis=5000\n"
    settings = load_websockets(written(tmp_path, text)).settings
    assert (settings.configuration_store, settings.session_timeout_ms) == ("a:1", 5000)
    text += "configurationStoreServers=b:1\nconfigurationMetadataStoreUrl=zk:c:1\n"
    assert load_websockets(written(tmp_path, text)).settings.configuration_store == "zk:c:1"


def test_what_is_wrong_is_told_with_its_line(tmp_path: Path) -> None:
    text = "webServicePort=70000\nwebSocketMaxTextFrameSize=0\ncryptoKeyReaderFactoryClassName=x.Y\n"
    path = written(tmp_path, text)
    with pytest.raises(ConfigurationError) as refused:
        load_websockets(path)
    names = ("webServicePort", "webSocketMaxTextFrameSize", "cryptoKeyReaderFactoryClassName")
    for number, (name, problem) in enumerate(zip(names, refused.value.problems, strict=True), 1):
        assert problem.startswith(f"{path}:{number}: {name}")


def test_every_honoured_key_is_an_attribute_and_no_other() -> None:
    table = websocket_settings_table().items()
    honoured = {attribute_name(key) for key, row in table if row.kind is SettingClass.HONOURED}
    assert honoured == {each.name for each in fields(WebSocketProcessSettings)}


def test_unknown_keys_are_named_in_a_warning(tmp_path: Path) -> None:
    [warning] = load_websockets(written(tmp_path, "whatever=1\n")).warnings
    assert "whatever (line 1)" in warning
