"""A query goes on from the checkpoint of an earlier release, and an earlier release from ours."""

from __future__ import annotations

import tarfile
from pathlib import Path

import duckdb
import kept_checkpoint
import kept_data
from earlier_source import earlier_source, first_with
from kept_checkpoint import MESSAGES, NAME
from server import Server

from magnetar.metadata.sqlite_nodes import FORMAT_VERSION

FOLDER = Path(__file__).parents[1] / "integration" / "data_formats"
MORE = 30


def test_a_kept_checkpoint_goes_on_with_this_release_and_with_an_earlier_one(tmp_path: Path) -> None:
    """Each message is in the archive once, those of the batch that was killed too."""
    with tarfile.open(FOLDER / NAME) as packed:
        packed.extractall(tmp_path, filter="data")
    server = Server(tmp_path, kept_data.SETTINGS)
    server.start()
    client = kept_data.connected(server)
    try:
        kept_checkpoint.archive(server)
        assert archived(tmp_path) == list(range(MESSAGES))
        kept_checkpoint.publish(client, MESSAGES, MORE)
        first = first_with(f"FORMAT_VERSION = {FORMAT_VERSION}", "src/magnetar/metadata")
        kept_checkpoint.archive(server, earlier_source(first, tmp_path / "earlier"))
        assert archived(tmp_path) == list(range(MESSAGES + MORE))
    finally:
        client.close()
        server.close()


def archived(folder: Path) -> list[int]:
    files = f"{folder}/archive/data/*/*.parquet"
    found = duckdb.sql(f"select cast(decode(value) as integer) as n from read_parquet('{files}') order by n")
    return [row[0] for row in found.fetchall()]
