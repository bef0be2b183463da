"""Reads open tables with the programs that users have: DuckDB, ``deltalake`` and PyIceberg."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog


def extension(name: str) -> str:
    """The file of an extension of DuckDB, which a package brings."""
    found = find_spec(f"duckdb_extension_{name}")
    assert found is not None
    assert found.origin is not None
    return str(next(Path(found.origin).parent.rglob(f"{name}.duckdb_extension")))


def duck(line: str, *, once: str = "") -> pa.Table:
    """What DuckDB answers to a line of the report.

    :param once: the statements that the report has for tables in an object store
    """
    connection = _duckdb(("avro", "iceberg") if "iceberg_scan" in line else ("delta",))
    if not once:
        return connection.execute(line).to_arrow_table()
    with connection.cursor() as other:
        # Tests load what packages bring.
        other.execute(once.replace("INSTALL httpfs; LOAD httpfs", f"LOAD '{extension('httpfs')}'"))
        return other.execute(line).to_arrow_table()


@cache
def _duckdb(extensions: tuple[str, ...]) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(config={"autoinstall_known_extensions": False})
    for each in extensions:
        connection.execute(f"LOAD '{extension(each)}'")
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def delta_rows(path: Path) -> pa.Table:
    return pa.table(DeltaTable(str(path)).to_pyarrow_table())


def iceberg_catalog(path: Path) -> SqlCatalog:
    return SqlCatalog("magnetar", uri=f"sqlite:///{path}/catalog.db", warehouse=str(path))


def iceberg_rows(path: Path, *name: str) -> pa.Table:
    return iceberg_catalog(path).load_table(name).scan().to_arrow()


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    return [dict(each) for each in table.to_pylist()]
