"""``magnetar tokens``: what it writes others read, and the other way round."""

from __future__ import annotations

import base64
import errno
import io
import json
import os
import stat
import time
from pathlib import Path
from typing import NoReturn

import jwt
import pytest
from cryptography.hazmat.primitives.serialization import load_der_private_key, load_der_public_key

from magnetar.cli.magnetar import main

OF_PULSAR = {
    "secret": "W3PFFKdwUcNNGXPGgB6r1tNW69XtA4niE9CXXFN0K+M=",
    "token": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbGljZSJ9.WeIq4lNDJTV1_RGTDIJW7ms7in1uz5XhzLnXKkUZCb8",
    "ec-private": "MEECAQAwEwYHKoZIzj0CAQYIKoZIzj0DAQcEJzAlAgEBBCByMTedij4KXcKMn6DytVegSEuRUn7LcfFw"
    "Ou2DFNFVsA==",
    "ec-public": "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEGSdZ5hoG22cLNAfbwZjSp+LPia+/FhLr1qutXzohjjFb"
    "C7bG/m2Jk9A8epj2rq8sI8O/cPIAH2P+ZimkFLDSnA==",
    "ec-token": "eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJib2IifQ.rspc4Xh23LkNvmO5WEO9xu7UFmV2cy84aDkcc2Q-"
    "SmvF23tMjmjjct5StT5QEV-LZxTMIOUvd6Hn9I7l0JrSOA",
}
"""What the command of Apache Pulsar 4.0.8 has written; keys in base64."""


class Output:
    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.error = ""

    def of(self, *arguments: object, code: int = 0) -> str:
        """What the command prints."""
        assert main(["tokens", *map(str, arguments)]) == code
        found = self._capsys.readouterr()
        self.error = found.err
        return found.out

    def not_understood(self, *arguments: object) -> str:
        with pytest.raises(SystemExit) as ended:
            main(["tokens", *map(str, arguments)])
        assert ended.value.code == 2
        return self._capsys.readouterr().err


@pytest.fixture
def output(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Output:
    monkeypatch.delenv("TOKEN", raising=False)
    return Output(capsys)


@pytest.mark.parametrize(("algorithm", "size"), [("HS256", 32), ("HS384", 48), ("HS512", 64)])
def test_a_secret_key_and_a_token_of_it(output: Output, tmp_path: Path, algorithm: str, size: int) -> None:
    raw, text = tmp_path / "raw", tmp_path / "text"
    raw.write_text("what was there")
    raw.chmod(0o644)
    assert output.of("create-secret-key", "-a", algorithm, "-o", raw) == ""
    output.of("create-secret-key", "-a", algorithm, "--base64", "--output", text)
    assert len(base64.b64decode(text.read_bytes(), validate=True)) == len(raw.read_bytes()) == size
    assert stat.S_IMODE(raw.stat().st_mode) == 0o600, "also of a file that others could read before"
    token = output.of("create", "-sk", f"file:{raw}", "-s", "alice").strip()
    assert jwt.get_unverified_header(token) == {"alg": algorithm}
    assert jwt.decode(token, raw.read_bytes(), algorithms=[algorithm]) == {"sub": "alice"}
    token = jwt.encode({"sub": "bob", "x": [1, True, None], "y": {"z": "a"}}, raw.read_bytes(), algorithm)
    assert output.of("validate", "-sk", raw, token) == "{sub=bob, x=[1, true, null], y={z=a}}\n"
    output.of("validate", "-sk", raw, token[:-4] + "AAAA", code=1)
    assert "signature" in output.error


def test_a_secret_key_is_printed_when_no_file_is_named(output: Output) -> None:
    first, second = output.of("create-secret-key", "-b"), output.of("create-secret-key", "-b")
    assert first != second
    assert len(base64.b64decode(first, validate=True)) == 32


@pytest.mark.parametrize("algorithm", ["RS256", "PS256", "ES256", "ES384", "ES512"])
def test_a_pair_of_keys_and_a_token_of_it(output: Output, tmp_path: Path, algorithm: str) -> None:
    private, public = tmp_path / "private", tmp_path / "public"
    output.of(
        "create-key-pair", "-a", algorithm, "--output-private-key", private, "--output-public-key", public
    )
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    signs = load_der_private_key(private.read_bytes(), None)
    checks = load_der_public_key(public.read_bytes())
    token = output.of("create", "-a", algorithm, "-pk", f"file:{private}", "-s", "alice").strip()
    assert jwt.decode(token, checks, algorithms=[algorithm]) == {"sub": "alice"}  # type: ignore[arg-type]
    token = jwt.encode({"sub": "bob"}, signs, algorithm)  # type: ignore[arg-type]
    assert output.of("validate", "-a", algorithm, "-pk", public, token) == "{sub=bob}\n"
    other = "RS256" if algorithm.startswith("ES") else "ES256"
    output.of("create", "-a", other, "-pk", private, "-s", "alice", code=1)
    assert "this kind of key cannot be used" in output.error


def test_an_existing_file_is_replaced_as_a_whole_and_a_pipe_is_written_to(
    output: Output, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, pipe = tmp_path / "key", tmp_path / "pipe"
    key.write_bytes(b"old")

    def full(descriptor: int, mode: str) -> NoReturn:
        os.close(descriptor)
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as without_room:
        without_room.setattr(os, "fdopen", full)
        output.of("create-secret-key", "--output", key, code=1)
    assert key.read_bytes() == b"old"
    assert [each.name for each in tmp_path.iterdir()] == ["key"]
    output.of("create-secret-key", "--output", key)
    assert len(key.read_bytes()) == 32
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    output.of("create-secret-key", "--output", pipe)
    assert len(os.read(reader, 100)) == 32
    os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_what_pulsar_has_written_is_read(output: Output) -> None:
    for key, token, role in (("-sk", "token", "alice"), ("-pk", "ec-token", "bob")):
        of = OF_PULSAR["secret" if key == "-sk" else "ec-public"]
        told = output.of("validate", "-a", "ES256", key, f"data:;base64,{of}", OF_PULSAR[token])
        assert told == f"{{sub={role}}}\n"
    same = output.of("create", "-sk", f"data:;base64,{OF_PULSAR['secret']}", "-s", "alice")
    assert same.strip() == OF_PULSAR["token"]
    assert output.of("create", "-a", "ES256", "-pk", OF_PULSAR["ec-private"], "-s", "alice")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30", 30), ("30s", 30), ("5m", 300), ("1h", 3600), ("3d", 259200), ("2w", 1209600), ("10y", 315360000)],
)
def test_times(output: Output, text: str, seconds: int) -> None:
    key = f"data:;base64,{OF_PULSAR['secret']}"
    before = int(time.time())
    token = output.of("create", "-sk", key, "-s", "a", "-e", text, "-hs", "kid=7").strip()
    ends = jwt.decode(token, options={"verify_signature": False})["exp"]
    assert before + seconds <= ends <= int(time.time()) + seconds
    assert jwt.get_unverified_header(token) == {"alg": "HS256", "kid": "7"}


@pytest.mark.parametrize("text", ["", "h", "5x", "-5m", "1.5h", "٣m", "9999999999y"])
def test_what_is_no_time(output: Output, text: str) -> None:
    assert "is not a duration; use a form like" in output.not_understood(
        "create", "-sk", "x", "-s", "a", f"--expiry-time={text}"
    )


def test_where_a_token_comes_from(output: Output, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token = OF_PULSAR["token"]
    shown = '{"alg":"HS256"}\n---\n{"sub":"alice"}\n'
    file = tmp_path / "token"
    file.write_text(f"{token}\n")
    assert output.of("show", token) == shown
    assert output.of("show", "-f", file) == shown
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{token}\n"))
    assert output.of("show", "-i") == shown
    monkeypatch.setenv("TOKEN", token)
    assert output.of("show") == shown
    monkeypatch.delenv("TOKEN")
    output.of("show", code=1)
    assert "TOKEN" in output.error


def test_what_a_token_says_does_nothing_to_a_terminal(output: Output) -> None:
    claims = base64.urlsafe_b64encode('{"sub":"\x9b31m\u202e"}'.encode()).rstrip(b"=").decode()
    told = output.of("show", f"e30.{claims}.x")
    assert told.rstrip("\n").replace("\n", "").isprintable()


@pytest.mark.parametrize("token", ["a.b", "a.b.c", "e30.bm8.x", "", ".."])
def test_what_is_no_token(output: Output, token: str) -> None:
    output.of("show", token, code=1)
    assert output.error


@pytest.mark.parametrize(
    "arguments",
    [
        ("create", "-s", "a"),
        ("create", "-s", "a", "-sk", "x", "-pk", "y"),
        ("create", "-s", "a", "-sk", "/nowhere/key"),
        ("create", "-s", "a", "-sk", base64.b64encode(b"short").decode()),
        ("create", "-s", "a", "-pk", OF_PULSAR["secret"]),
        ("create-secret-key", "-o", "/nowhere/key"),
        ("validate", OF_PULSAR["token"]),
        ("validate", "-sk", "x", "-pk", "y", OF_PULSAR["token"]),
        ("validate", "-pk", OF_PULSAR["ec-public"], OF_PULSAR["ec-token"]),
        ("validate", "-f", "/nowhere/token", "-sk", "x"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(output: Output, arguments: tuple[str, ...]) -> None:
    assert output.of(*arguments, code=1) == ""
    assert len(output.error.splitlines()) == 1
    assert json.dumps(OF_PULSAR["secret"]) not in output.error


def test_a_header_cannot_choose_the_algorithm(output: Output) -> None:
    output.not_understood("create", "-s", "a", "-sk", OF_PULSAR["secret"], "-hs", "alg=none")
