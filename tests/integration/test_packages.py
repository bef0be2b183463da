"""Packages through the real commands: up, down, listed, changed, gone; across lives, and by permission."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from secured import SUPERUSER, SecuredServer, token
from server import Server

from magnetar.cli.pulsar_admin import main

NAME = "function://public/default/words@1"
_MIB = 1 << 20
_LARGE = 48 * _MIB


class Admin:
    """Runs ``pulsar-admin`` in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str], server: Server, *proof: str) -> None:
        self._capsys = capsys
        self._always = ["--admin-url", server.http_url, *proof]

    def __call__(self, *words: str) -> tuple[int, str]:
        """The exit code, and what was printed where."""
        code = main([*self._always, "packages", *words])
        out, err = self._capsys.readouterr()
        return code, out if code == 0 else err

    def done(self, *words: str) -> str:
        code, text = self(*words)
        assert code == 0, text
        return text


def _peak(server: Server) -> int:
    """The most memory that the process had, in bytes."""
    for line in Path(f"/proc/{server.pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("the kernel does not say")


def test_a_package_from_upload_to_deletion(
    start_server: Callable[..., Server], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = start_server(enablePackagesManagement="true", magnetarMaxPackageSizeBytes=_LARGE)
    admin = Admin(capsys, server)
    given, got = tmp_path / "given.nar", tmp_path / "got.nar"
    given.write_bytes(os.urandom(_MIB) * 3 + b"end")
    upload = ("--description", "counts words", "--path", str(given))
    told = admin.done("upload", NAME, *upload, "--contact", "me", "-P", "k=v")
    assert told == f"The package '{NAME}' uploaded from path '{given}' successfully\n"
    assert "already exists" in admin("upload", NAME, *upload)[1]
    admin.done("upload", NAME.replace("@1", "@2"), *upload)
    assert admin.done("list", "public/default", "--type", "function") == "words\n"
    assert admin.done("list", "public/default", "--type", "sink") == ""
    assert admin.done("list-versions", NAME) == "1\n2\n"
    found = json.loads(admin.done("get-metadata", NAME))
    assert (found["description"], found["contact"], found["properties"]) == ("counts words", "me", {"k": "v"})
    admin.done("update-metadata", NAME, "--description", "counts more")
    server.restart(kill=True)
    admin = Admin(capsys, server)
    found = json.loads(admin.done("get-metadata", NAME))
    assert (found["description"], found["properties"]) == ("counts more", {})
    told = admin.done("download", NAME, "--path", str(got))
    assert told == f"The package '{NAME}' downloaded to path '{got}' successfully\n"
    assert got.read_bytes() == given.read_bytes()
    assert admin.done("delete", NAME) == f"The package '{NAME}' deleted successfully\n"
    code, why = admin("download", NAME, "--path", str(got))
    assert code == 1
    assert f"Package '{NAME}' does not exist" in why
    # What was there before stays, and nothing lies beside it.
    assert got.read_bytes() == given.read_bytes()
    assert sorted(tmp_path.iterdir()) == [given, got]
    assert admin.done("list-versions", NAME) == "2\n"
    assert "function, sink, source" in admin("list", "public/default", "--type", "jar")[1]
    assert "cannot be read" in admin("upload", f"{NAME}0", "--description", "d", "--path", "/none")[1]

    before = _peak(server)
    given.write_bytes(os.urandom(_MIB) * (_LARGE // _MIB))
    admin.done("upload", NAME, *upload)
    admin.done("download", NAME, "--path", str(got))
    assert got.read_bytes() == given.read_bytes()
    # It was in no place as a whole.
    assert _peak(server) - before < _LARGE // 2
    with given.open("ab") as file:
        file.write(b"x")
    code, why = admin("upload", f"{NAME}0", *upload)
    assert code == 1
    assert f"more than {_LARGE} bytes" in why
    assert admin.done("list-versions", NAME) == "1\n2\n"


def test_by_default_they_are_switched_off(
    start_server: Callable[..., Server], capsys: pytest.CaptureFixture[str]
) -> None:
    code, why = Admin(capsys, start_server())("list", "public/default", "--type", "function")
    assert code == 1
    assert "enablePackagesManagement=true" in why


def test_a_permission_is_wanted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    server = SecuredServer(tmp_path, enablePackagesManagement="true")
    server.start()
    try:
        given = tmp_path / "given"
        given.write_bytes(os.urandom(4 * _MIB))
        upload = ("upload", NAME, "--description", "d", "--path", str(given))

        def admin(role: str) -> Admin:
            return Admin(capsys, server, "--auth-plugin", "token", "--auth-params", f"token:{token(role)}")

        for role in ("packer", "other"):
            code, why = admin(role)(*upload)
            # It is told although it was still sending.
            assert code == 1
            assert "may not packages" in why or "needs the permission packages" in why
        of_superuser = ["--admin-url", server.http_url, "--auth-plugin", "token"]
        of_superuser += ["--auth-params", f"token:{token(SUPERUSER)}", "namespaces", "grant-permission"]
        for role, action in (("packer", "packages"), ("other", "produce")):
            assert main([*of_superuser, "public/default", "--role", role, "--actions", action]) == 0
        capsys.readouterr()
        assert admin("other")(*upload)[0] == 1
        admin("packer").done(*upload)
        assert admin("packer").done("list-versions", NAME) == "1\n"
    finally:
        server.close()
