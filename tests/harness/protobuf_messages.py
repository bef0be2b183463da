"""Compiles ``.proto`` texts to definitions of schemas and classes of messages."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import grpc_tools
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from grpc_tools import protoc


class Compiled:
    """One version of a message, ``shop.Order``."""

    def __init__(self, folder: Path, text: str, syntax: str = "proto3") -> None:
        """:param text: imports, and the messages of the package ``shop``"""
        (folder / "order.proto").write_text(f'syntax = "{syntax}";\npackage shop;\n{text}')
        out = folder / "order.bin"
        wellknown = Path(grpc_tools.__file__).parent / "_proto"
        asked = [f"-I{folder}", f"-I{wellknown}", "--include_imports", f"--descriptor_set_out={out}"]
        assert protoc.main(["protoc", *asked, "order.proto"]) == 0
        files = FileDescriptorSet.FromString(out.read_bytes())
        pool = descriptor_pool.DescriptorPool()
        for each in files.file:
            pool.Add(each)
        self.message: Any = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
        # A file before the files that it imports, as some clients write them.
        files.file.sort(key=lambda each: each.name != "order.proto")
        definition = {
            "fileDescriptorSet": base64.b64encode(files.SerializeToString()).decode(),
            "rootMessageTypeName": "shop.Order",
            "rootFileDescriptorName": "order.proto",
        }
        self.definition = json.dumps(definition)
