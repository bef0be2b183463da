"""Programs written for the official client, as its tutorials show each feature: they print the same with the
official package and with ``magnetar.pulsar``. Each file has its expected output as its docstring.

The broker is Magnetar, or Apache Pulsar where MAGNETAR_PEER_URL names it (make client-on-pulsar)."""

from __future__ import annotations

import ast
import contextlib
import io
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from any_broker import Broker, broker, topic
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

__all__ = ["broker", "topic"]

PROGRAMS = sorted((Path(__file__).parent / "clients" / "programs").glob("*.py"))
CRASHES = {"table_view"}
"""Programs that the official package sometimes ends with SIGSEGV after they have printed everything: version
3.13 uses a reader that ``TableView.close`` has freed (``TableViewImpl::readTailMessage``)."""
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
    broker: Broker, topic: str, keys: tuple[str, str], program: Path, package: str
) -> None:
    text = program.read_text()
    expected = ast.get_docstring(ast.parse(text), clean=False)
    assert expected is not None
    if package == "magnetar.pulsar":
        for pattern, replacement in IMPORTS:
            text = re.sub(pattern, replacement, text, flags=re.MULTILINE)

    def partition(count: int) -> None:
        broker.admin.create_partitioned_topic(topic, count)

    given = {
        "__name__": "__main__",
        "URL": broker.url,
        "TOPIC": topic,
        "PUBLIC_KEY": keys[0],
        "PRIVATE_KEY": keys[1],
        "PARTITION": partition,
    }
    if package == "pulsar" and program.stem in CRASHES:
        variables = {name: value for name, value in given.items() if isinstance(value, str)}
        # The package logs to standard output.
        alone = f"import sys\nsys.stdout = sys.stderr\nglobals().update({variables!r})\n{text}"
        ended = subprocess.run([sys.executable, "-c", alone], capture_output=True, text=True, check=False)
        assert ended.returncode in (0, -signal.SIGSEGV), ended.stderr
        assert ended.stderr.strip() == expected.strip()
        return
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(text, str(program), "exec"), given)
    assert printed.getvalue().strip() == expected.strip()
