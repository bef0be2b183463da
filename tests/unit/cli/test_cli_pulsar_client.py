"""``pulsar-client``: what is known of a command line without a broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from magnetar.cli.client.options import parser
from magnetar.cli.client.producing import Prepared, prepared
from magnetar.cli.pulsar_client import main
from magnetar.client import InvalidMessage
from magnetar.client.outgoing_message import MessageOptions
from magnetar.protocol.pulsar_api_pb2 import MessageMetadata, Schema

RECORD = '{"type":"record","name":"R","fields":[{"name":"id","type":"int"}]}'


def given(*arguments: str) -> Prepared:
    return prepared(parser().parse_args(["produce", "t", *arguments]))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("produce t", "--messages or --files"),
        ("produce t -m a -vs text", "'text' is not a schema; use bytes, string, avro:DEFINITION"),
        ("produce t -m a -vs json:{", "the definition is not JSON"),
        ('produce t -m a -vs avro:{"type":"nothing"}', "--value-schema: Invalid schema definition"),
        ("produce t -m a -vs avro:" + RECORD, "--value-schema: content 1:"),
        ("produce t -m a -kvk k", "--key-value-key requires --key-value-encoding-type"),
        ("produce t -m a -ks string", "--key-schema requires --key-value-encoding-type"),
        ("produce t -m a -kvet inline -kvk k -k l", "--key-value-key and --key: use only one of them"),
        ("produce t -m a -kvet inline -kvk k -ks json:" + RECORD, "--key-schema: the key:"),
        ("produce t -m a -p b", "'b' is not a property; use KEY=VALUE"),
        ("produce t -m a -ekn name", "would not be encrypted"),
        ("consume t -s s -stp 5 -etp 3", "--start-timestamp and --end-timestamp"),
        ("consume t -s s -ekv /none/there.pem", "/none/there.pem"),
        ("read t -m soon", "'soon' is not a message id; use earliest, latest or LEDGER:ENTRY"),
        ("--url ws://127.0.0.1:1 read t", "does not support WebSocket"),
        ("--proxy-url pulsar://p:1 read t", "proxy_service_url must be like pulsar+ssl://proxy:6651"),
        ("--proxy-url pulsar+ssl://p:1 read t", "proxy_service_url requires TLS"),
        ("--proxy-url pulsar+ssl://p:1 --proxy-protocol SOCKS read t", "--proxy-protocol"),
    ],
)
def test_refused_before_anybody_is_asked(
    arguments: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code: object = main(arguments.split(" "))
    except SystemExit as ended:
        code = ended.code
    assert (code, said in capsys.readouterr().err) == (1, True)


def test_contents_keys_and_options(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"\xff")
    (tmp_path / "content").write_bytes(b"\xfe,")
    file = str(tmp_path / "content")
    found = given("-m", "a,b", "-f", file, "-k", "k", "-p", "a=1,b=2", "-p", "c=d", "-dr")
    assert list(found.contents) == [b"a", b"b", b"\xfe,"]
    assert found.message == {
        "properties": {"a": "1,b", "c": "d"},
        "disable_replication": True,
        "partition_key": "k",
    }
    assert "schema" not in found.producer
    assert given("-m", "ab", "-s", "").contents == [b"a", b"b"]
    key = ("-kvkf", str(tmp_path / "key"), "-ks", "bytes")
    inline = given("-f", file, "-kvet", "inline", *key)
    assert list(inline.contents) == [b"\0\0\0\1\xff\0\0\0\2\xfe,"]
    assert "partition_key_bytes" not in inline.message
    separated = given("-m", '{"id":1}', "-kvet", "separated", "-vs", f"avro:{RECORD}", *key)
    assert (list(separated.contents), separated.message["partition_key_bytes"]) == ([b"\2"], b"\xff")
    schema = Schema()
    separated.producer["schema"].fill(schema)
    assert schema.type == Schema.KeyValueSchema
    assert schema.schema_data == b"\0\0\0\0" + len(RECORD).to_bytes(4, "big") + RECORD.encode()
    assert given("-m", "a", "-kvet", "separated").message["null_partition_key"]
    chunked = given("-m", "a", "-c").producer
    assert (chunked["chunking_enabled"], chunked["batching_enabled"]) == (True, False)


def test_a_null_key_is_no_key() -> None:
    metadata = MessageMetadata()
    MessageOptions(null_partition_key=True).fill(metadata)
    assert (metadata.null_partition_key, metadata.HasField("partition_key")) == (True, False)
    with pytest.raises(InvalidMessage):
        MessageOptions(partition_key="k", null_partition_key=True)
