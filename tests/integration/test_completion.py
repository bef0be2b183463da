"""Shells complete command lines with the scripts that ``magnetar completion`` prints."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from server import Server
from terminal import Terminal

from magnetar.cli import magnetar
from magnetar.cli.pulsar_admin import main

_ASKED = """\
source <(magnetar completion bash)
while IFS= read -r COMP_LINE; do
    COMP_POINT=${#COMP_LINE}
    _magnetar_words
    echo "${COMPREPLY[*]}"
done
"""
TOPIC = "persistent://shop/eu/orders"


@pytest.fixture(scope="module")
def url(start_server: Callable[..., Server]) -> str:
    found = start_server().http_url
    for line in (
        "tenants create shop",
        "namespaces create shop/eu",
        f"topics create {TOPIC}",
        "topics create-partitioned-topic shop/eu/parts -p 2",
        "topics create-subscription greetings -s keep",
    ):
        assert main(["--admin-url", found, *line.split(" ")]) == 0
    return found


def completed(url: str, *lines: str) -> list[str]:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("needs bash")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    ran = subprocess.run(
        [bash, "--norc", "-c", _ASKED],
        input="".join(f"{line}\n" for line in lines),
        env={**os.environ, "PATH": path, "PULSAR_ADMIN_URL": url},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stderr == ""
    return ran.stdout.splitlines()


def test_bash_completes_commands_options_and_names(url: str) -> None:
    asked = {
        "magnetar expl": "explain explain-placement",
        "magnetar completion b": "bash",
        "pulsar-admin names": "namespaces",
        "pulsar-admin --output json top": "topicPolicies topics",
        "pulsar-admin topics partitioned-look": "partitioned-lookup",
        "pulsar-admin functions cre": "",
        "pulsar-admin topics list --top": "--topic-domain",
        "pulsar-admin topics list shop/eu -td ": "persistent non-persistent non_persistent",
        "pulsar-admin namespaces topics sh": "shop/",
        "pulsar-admin namespaces topics shop/": "shop/eu",
        # A colon begins another word of bash.
        "pulsar-admin topics stats pers": "persistent://",
        "pulsar-admin topics stats persistent://sh": "//shop/",
        "pulsar-admin topics stats persistent://shop/eu/": "//shop/eu/orders //shop/eu/parts",
        "pulsar-admin topics stats shop/eu/o": "shop/eu/orders",
        "pulsar-admin topics skip -s a shop/eu/o": "shop/eu/orders",
        "pulsar-admin topics stats 'shop/eu/o": "",
        "pulsar-admin tenants get sh": "shop",
        "pulsar-admin --nothing ": "",
        "magnetar tail sh": "shop/",
        "magnetar tail -o ": "text json",
        "magnetar tail gree": "greetings",
        "magnetar pipeline arch": "archive",
        "magnetar pipeline init dlq": "dlq-report dlq-redrive",
        "magnetar pipeline i": "init",
        "pulsar-perf con": "consume",
        "pulsar-perf read gree": "greetings",
        "pulsar-perf produce -r 5 greetings shop/eu/o": "shop/eu/orders",
        "pulsar-perf consume --subscription-t": "--subscription-type",
        "pulsar-admin topics stats gree": "greetings",
        "magnetar consume -s a shop/eu/o": "shop/eu/orders",
        "magnetar consume shop/eu/orders --ty": "--type",
        "magnetar top --on": "--once",
        "pulsar-client con": "consume",
        "pulsar-client --url pulsar://localhost:1 consume -t Key": "Key_Shared",
        "pulsar-client consume -s s --regex shop/eu/o": "shop/eu/orders",
        "pulsar-client read shop/eu/orders --start": "--start-message-id --start-message-id-inclusive",
    }
    assert dict(zip(asked, completed(url, *asked), strict=True)) == asked


def test_without_a_broker_nothing_is_offered_and_nothing_is_said() -> None:
    assert completed("http://127.0.0.1:1", "pulsar-admin tenants get ", "pulsar-admin tenants g") == [
        "",
        "get",
    ]


_SHOW = 'echo "<$*>"'
SHELLS = {
    "bash": (
        ("bash", "--norc", "--noprofile", "-i"),
        f"source <(magnetar completion bash); pulsar-admin() {{ {_SHOW}; }}",
    ),
    "zsh": (
        ("zsh", "-f", "-i"),
        "autoload -U compinit; compinit -D -u; source <(magnetar completion zsh); "
        f"pulsar-admin() {{ {_SHOW}; }}",
    ),
    "fish": (
        ("fish", "--no-config", "-i"),
        'magnetar completion fish | source; function pulsar-admin; echo "<$argv>"; end',
    ),
}
"""How each is started at a terminal; what it is told, after which ``pulsar-admin`` shows its words."""
TYPED = {
    "names\t": "namespaces",
    "topics list --top\t": "topics list --topic-domain",
    "-o js\ttenants li\t": "-o json tenants list",
    # Behind a slash no space comes.
    "namespaces topics sh\t\t": "namespaces topics shop/eu",
    "topics stats pers\tsh\t\to\t": f"topics stats {TOPIC}",
    "topics skip -s a shop/eu/pa\t": "topics skip -s a shop/eu/parts",
    # Nothing is there to be offered, and nothing is written.
    "functions cre\t": "functions cre",
}


@pytest.mark.parametrize("shell", SHELLS)
def test_at_a_terminal(url: str, shell: str, tmp_path: Path) -> None:
    program, setup = SHELLS[shell]
    if shutil.which(program[0]) is None:
        pytest.skip(f"needs {shell}: apt-get install {shell}")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PULSAR_ADMIN_URL": url, "HOME": str(tmp_path)}
    with Terminal(program=program, environment=environment) as terminal:
        terminal.type(f"{setup}\n")
        for typed, words in TYPED.items():
            terminal.type(f"pulsar-admin {typed}\n")
            terminal.writes(f"<{words}>\r")


@pytest.mark.parametrize("shell", SHELLS)
def test_each_script_asks_for_words(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert magnetar.main(["completion", shell]) == 0
    assert "magnetar completion words" in capsys.readouterr().out
