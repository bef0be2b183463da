"""Programs written for the official client, as its tutorials show each feature: they print the same with the
official package and with ``magnetar.pulsar``. Each file has its expected output as its docstring."""

from __future__ import annotations

import ast
import contextlib
import io
import re
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from server import Server

PROGRAMS = sorted((Path(__file__).parent / "clients" / "programs").glob("*.py"))
IMPORTS = (
    (r"^import pulsar\.asyncio$", "import magnetar.pulsar.asyncio"),
    (r"^import pulsar$", "import magnetar.pulsar as pulsar"),
    (r"^from pulsar\b", "from magnetar.pulsar"),
)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Paths of a public and a private key in PEM."""
    folder = tmp_path_factory.mktemp("keys")
    private = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    public = private.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    (folder / "public.pem").write_bytes(public)
    (folder / "private.pem").write_bytes(
        private.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )
    return str(folder / "public.pem"), str(folder / "private.pem")


@pytest.mark.parametrize("package", ["pulsar", "magnetar.pulsar"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_a_program_prints_what_it_prints_with_the_official_client(
    server: Server, topic: str, keys: tuple[str, str], program: Path, package: str
) -> None:
    text = program.read_text()
    expected = ast.get_docstring(ast.parse(text), clean=False)
    assert expected is not None
    if package == "magnetar.pulsar":
        for pattern, replacement in IMPORTS:
            text = re.sub(pattern, replacement, text, flags=re.MULTILINE)

    def partition(count: int) -> None:
        assert server.ask("PUT", f"/admin/v2/{topic.replace('://', '/')}/partitions", str(count))[0] == 204

    given = {
        "__name__": "__main__",
        "URL": server.url,
        "TOPIC": topic,
        "PUBLIC_KEY": keys[0],
        "PRIVATE_KEY": keys[1],
        "PARTITION": partition,
    }
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(text, str(program), "exec"), given)
    assert printed.getvalue().strip() == expected.strip()
