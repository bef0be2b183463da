"""Inputs that reached something new once, or are the shortest of their kind: none of them does harm."""

from __future__ import annotations

from random import Random

import pytest
from fuzz_targets import CORPUS, TARGETS

_DAMAGED = 3_000


@pytest.mark.parametrize("name", TARGETS)
def test_kept_inputs_do_no_harm(name: str) -> None:
    target = TARGETS[name]()
    files = sorted((CORPUS / name).iterdir())
    assert files
    for file in files:
        target(file.read_bytes())


@pytest.mark.parametrize("name", ["tokens", "htpasswd", "claims", "handshakes"])
def test_damaged_proofs_prove_nothing(name: str) -> None:
    target, random = TARGETS[name](), Random(name)
    inputs = [file.read_bytes() for file in sorted((CORPUS / name).iterdir())]
    for _ in range(_DAMAGED if name != "handshakes" else _DAMAGED // 10):
        target(damaged(random.choice(inputs), random))


def damaged(data: bytes, random: Random) -> bytes:
    """The same with a few bytes changed, left out, or doubled."""
    found = bytearray(data)
    for _ in range(random.randrange(1, 4)):
        at = random.randrange(len(found) + 1)
        length = random.randrange(1, 6)
        match random.randrange(4):
            case 0:
                found[at : at + length] = random.randbytes(length)
            case 1:
                del found[at : at + length]
            case 2:
                found[at:at] = found[at : at + length]
            case _:
                found[at:at] = random.choice((b"\n", b".", b":", b"$", b"\x00", b"=", b'"', b"\xff"))
    return bytes(found)
