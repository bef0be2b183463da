"""Regenerates the protobuf modules from their .proto files.

Run it with a Python that has grpcio-tools 1.72: its code works with every protobuf version that the project
accepts; code of a newer version refuses older ones.
"""

from __future__ import annotations

import re
import shutil
import sys
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory

SOURCE = Path(__file__).resolve().parent.parent / "src"
PROTOS = (
    "magnetar/protocol/pulsar_api.proto",
    "magnetar/managed_ledger/records.proto",
    "magnetar/broker/schemas/records.proto",
    "magnetar/broker/transactions/records.proto",
    "magnetar/broker/replication/subscriptions/markers.proto",
    "magnetar/ledger/bookkeeper/records.proto",
    "magnetar/ledger/bookkeeper/bookie_protocol.proto",
)
WANTED = "6.30"


def main() -> int:
    """Returns 0 if all modules are written; otherwise 1, with a reason, and writes none."""
    with TemporaryDirectory() as folder:
        trouble = _generated(Path(folder))
        if trouble:
            print(trouble, file=sys.stderr)
            return 1
        for made in (each for each in Path(folder).rglob("*") if each.is_file()):
            shutil.copyfile(made, SOURCE / made.relative_to(folder))
    return 0


def _generated(folder: Path) -> str:
    """Writes all modules to a folder; returns why they cannot be used, empty: they can."""
    try:
        from grpc_tools import protoc
    except ImportError:
        return "grpcio-tools is not installed: pip install 'grpcio-tools==1.72.*'"
    include = str(files("grpc_tools") / "_proto")
    arguments = [f"-I{SOURCE}", f"-I{include}", f"--python_out={folder}", f"--pyi_out={folder}"]
    if protoc.main(["protoc", *arguments, *PROTOS]) != 0:
        return "protoc has refused them"
    for proto in PROTOS:
        module = proto.replace(".proto", "_pb2.py")
        version = re.search(r"Protobuf Python Version: ([\d.]+)", (folder / module).read_text())
        if version is None or not version[1].startswith(WANTED + "."):
            found = version[1] if version else "unknown"
            return f"{module} would be for protobuf {found}, not {WANTED}; use grpcio-tools 1.72"
    return ""


if __name__ == "__main__":
    sys.exit(main())
