"""The generated modules are those of the .proto files, and load with the oldest protobuf accepted."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto, FileDescriptorSet

import magnetar

SOURCE = Path(magnetar.__file__).parent.parent
every_proto = pytest.mark.parametrize(
    "proto", ["magnetar/protocol/pulsar_api.proto", "magnetar/managed_ledger/records.proto"]
)


def forget_derived_names(messages: Iterable[DescriptorProto]) -> None:
    """Clears the JSON names: the compiler writes them to descriptor files, but not into modules."""
    for message in messages:
        for field in message.field:
            field.ClearField("json_name")
        forget_derived_names(message.nested_type)


@every_proto
def test_the_module_is_made_from_the_proto(proto: str, tmp_path: Path) -> None:
    protoc = pytest.importorskip("grpc_tools.protoc")
    compiled = tmp_path / "compiled"
    include = str(files("grpc_tools") / "_proto")
    assert (
        protoc.main(["protoc", f"-I{SOURCE}", f"-I{include}", f"--descriptor_set_out={compiled}", proto]) == 0
    )
    wanted = FileDescriptorSet.FromString(compiled.read_bytes()).file[0]
    module = importlib.import_module(proto.removesuffix(".proto").replace("/", ".") + "_pb2")
    found = FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)
    forget_derived_names(wanted.message_type)
    assert found == wanted


@every_proto
def test_the_module_loads_with_the_oldest_protobuf(proto: str) -> None:
    text = (SOURCE / proto.replace(".proto", "_pb2.py")).read_text()
    version = re.search(r"Protobuf Python Version: (\d+)\.(\d+)", text)
    assert version is not None
    assert (int(version[1]), int(version[2])) == (6, 30)
