"""The command line must answer at once: nothing heavy is imported before the command is known."""

import json
import subprocess
import sys

import pytest

HEAVY = (
    "asyncio",
    "google",
    "h11",
    "jwt",
    "cryptography",
    "uvloop",
    "sqlite3",
    "magnetar.server",
    "magnetar.broker",
    "magnetar.http",
)

PROGRAM = """
import contextlib, io, json, sys
from magnetar.cli.{module} import main
with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
    try:
        main({arguments})
    except SystemExit:
        pass
print(json.dumps(sorted(sys.modules)))
"""


@pytest.mark.parametrize(
    ("module", "arguments"),
    [
        ("magnetar", ["version"]),
        ("magnetar", ["--help"]),
        ("magnetar", ["tokens", "show", "e30.e30.x"]),
        ("magnetar", ["standalone", "--http-port", "x"]),
        ("magnetar", ["tail", "t", "--since", "soon"]),
        ("magnetar", ["explain", "t", "--admin-url", "http://127.0.0.1:1"]),
        ("magnetar", ["top", "--once", "--admin-url", "http://127.0.0.1:1"]),
        ("pulsar_admin", ["--help"]),
        ("pulsar_admin", ["--admin-url", "http://127.0.0.1:1", "clusters", "list"]),
        ("pulsar_admin", ["--auth-plugin", "token", "--auth-params", "t", "clusters", "list"]),
        ("pulsar_client", None),
        ("pulsar_client", ["--help"]),
        ("pulsar_client", ["consume", "t"]),
        ("pulsar_client", ["read", "t", "-n", "x"]),
        ("pulsar_perf", None),
    ],
)
def test_modules_that_a_short_command_imports(module: str, arguments: list[str] | None) -> None:
    program = PROGRAM.format(module=module, arguments="" if arguments is None else repr(arguments))
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    imported = json.loads(run.stdout)
    heavy = [name for name in imported if any(name == part or name.startswith(part + ".") for part in HEAVY)]
    assert heavy == []
