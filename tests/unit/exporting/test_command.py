"""``magnetar export-ledgers`` on data directories."""

from __future__ import annotations

from pathlib import Path

import pytest

from magnetar.cli.magnetar import main
from magnetar.config.settings import load
from magnetar.server.export_ledgers import ExportPlace


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """What a standalone broker has made that nobody has used."""
    import asyncio

    async def make(folder: Path) -> None:
        place = ExportPlace(load(None), folder)
        async with place.open(asyncio.get_running_loop(), make=True, check=False):
            pass

    asyncio.run(make(tmp_path / "data"))
    return tmp_path / "data"


def test_what_it_wants_to_be_told(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["export-ledgers", "--from", str(data), "--to", str(data.parent / "other")]
    assert main([*command, "--all"]) == 2
    assert "message ids change" in capsys.readouterr().err
    for wrong in ([], ["--all", "--topic", "t"], ["--topic", "a/b"]):
        assert main([*command, "--no-mapping", *wrong]) == 2
    assert "a/b" in capsys.readouterr().err
    assert not (data.parent / "other").exists()


def test_a_check_leaves_no_data(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = data.parent / "other"
    command = ["export-ledgers", "--from", str(data), "--to", str(target), "--all", "--no-mapping"]
    assert main([*command, "--check"]) == 0
    assert (
        f"0 topics can be exported from the data in {data} to the data in {target}" in capsys.readouterr().out
    )
    assert not target.exists()
    assert main(command) == 0
    assert (target / "ledgers").exists()


def test_places_that_are_none(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nothing = data.parent / "nothing"
    assert main(["export-ledgers", "--from", str(nothing), "--to", str(data), "--all", "--no-mapping"]) == 1
    assert f"{nothing} contains no data of a broker" in capsys.readouterr().err
    assert not nothing.exists()
    assert main(["export-ledgers", "--from", str(data), "--to", str(data), "--all", "--no-mapping"]) == 1
    assert "stop it first" in capsys.readouterr().err
    conf = data.parent / "broker.conf"
    conf.write_text("clusterName=lab\n")
    assert main(["export-ledgers", "--from", str(data), "--to", str(conf), "--all", "--no-mapping"]) == 1
    assert "metadataStoreUrl is not set" in capsys.readouterr().err
    conf.write_text("no such=thing\nmanagedLedgerDefaultEnsembleSize=x\n")
    assert main(["export-ledgers", "--from", str(data), "--to", str(conf), "--all", "--no-mapping"]) == 1
    assert "managedLedgerDefaultEnsembleSize" in capsys.readouterr().err
