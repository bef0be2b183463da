"""What settings name keys and files by."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from simulated_io import simulated_io

from magnetar.security.key_material import MAX_BYTES, KeySource, UnusableKey, WatchedFiles, key_source

KEY = bytes(range(32))
TEXT = base64.b64encode(KEY).decode()


@pytest.mark.parametrize(
    "text",
    [
        f"data:;base64,{TEXT}",
        f"data:application/octet-stream;base64,{TEXT}",
        "data:," + "".join(f"%{byte:02x}" for byte in KEY),
        TEXT,
        f"  {TEXT}\n",
    ],
)
def test_keys_that_are_given_themselves(text: str) -> None:
    source = key_source(text)
    assert source.path is None
    assert source.read() == KEY
    assert TEXT not in repr(source)


@pytest.mark.parametrize("form", ["file://{}", "file:{}", "file://localhost{}", "{}"])
@pytest.mark.parametrize("name", ["key", "a b", "ä#?%"])
def test_keys_in_files(tmp_path: Path, form: str, name: str) -> None:
    file = tmp_path / name
    file.write_bytes(KEY)
    path = str(file)
    if form.startswith("file"):
        path = path.replace("%", "%25").replace(" ", "%20").replace("#", "%23").replace("?", "%3F")
    source = key_source(form.format(path))
    assert source == KeySource(file)
    assert source.read() == KEY


@pytest.mark.parametrize(
    "text",
    [
        "",
        "  ",
        "data:",
        "data:;base64",
        "data:;base64,!",
        "not base64!",
        "file://elsewhere/key",
        "/nowhere/key",
    ],
)
def test_what_names_nothing(text: str) -> None:
    with pytest.raises(UnusableKey):
        key_source(text).read()


@pytest.mark.parametrize(
    "text", ["/nowhere/secret", "/tmp/Keys1/secretkeysecretkeysecretkeysecretkeysecr", "/" + "secret/" * 9]
)
def test_the_path_of_a_file_that_is_missing_is_no_key(text: str) -> None:
    """It is valid base64: whoever knows the path could else sign tokens."""
    with pytest.raises(UnusableKey, match="no file"):
        key_source(text)


def test_a_key_may_begin_with_a_slash() -> None:
    key = b"\xff" + KEY
    assert key_source(base64.b64encode(key).decode()).read() == key


def test_what_is_told_holds_no_key() -> None:
    for text in (f"data:;base64,{TEXT}!", f"{TEXT}!", f"data:{TEXT}"):
        with pytest.raises(UnusableKey) as refusal:
            key_source(text)
        assert TEXT not in str(refusal.value)


def test_files_that_cannot_be_a_key(tmp_path: Path) -> None:
    empty, large, folder = tmp_path / "empty", tmp_path / "large", tmp_path / "folder"
    empty.touch()
    with large.open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    folder.mkdir()
    for path in (empty, large, folder, tmp_path / "none"):
        with pytest.raises(UnusableKey):
            key_source(f"file:{path}").read()


def test_a_file_is_seen_to_change_go_and_come_back(tmp_path: Path) -> None:
    world = simulated_io(1)
    file, other = tmp_path / "a", tmp_path / "b"
    file.write_text("1")
    link = tmp_path / "link"
    link.symlink_to(file)
    told: list[int] = []
    watched = WatchedFiles(
        world.io, world.io.start_worker("w"), [file, link], 1.0, lambda: told.append(len(told))
    )

    def changes(expected: int) -> None:
        world.loop.run_for(3)
        assert len(told) == expected

    changes(0)
    file.write_text("12")
    changes(1)
    file.unlink()
    changes(2)
    changes(2)
    file.write_text("1")
    changes(3)
    # As Kubernetes does with secrets.
    other.write_text("1")
    link.unlink()
    link.symlink_to(other)
    changes(4)
    watched.close()
    file.write_text("123")
    changes(4)


def test_without_a_time_nothing_is_watched(tmp_path: Path) -> None:
    world = simulated_io(1)
    WatchedFiles(world.io, world.io.start_worker("w"), [tmp_path / "a"], 0, lambda: pytest.fail("told"))
    (tmp_path / "a").touch()
    world.loop.run_for(100)


def test_an_error_after_one_change_does_not_end_the_watch(tmp_path: Path) -> None:
    world = simulated_io(1)
    file = tmp_path / "file"
    file.write_text("1")
    told: list[int] = []

    def changed() -> None:
        told.append(len(told))
        if len(told) == 1:
            raise RuntimeError("the reader of the file is broken")

    watched = WatchedFiles(world.io, world.io.start_worker("w"), [file], 1.0, changed)
    file.write_text("12")
    with pytest.raises(RuntimeError, match="broken"):
        world.loop.run_for(3)
    file.write_text("123")
    world.loop.run_for(3)
    assert len(told) == 2
    watched.close()
