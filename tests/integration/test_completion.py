"""Bash completes command lines with the script that ``magnetar completion`` prints."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from server import Server

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
    }
    assert dict(zip(asked, completed(url, *asked), strict=True)) == asked


def test_without_a_broker_nothing_is_offered_and_nothing_is_said() -> None:
    assert completed("http://127.0.0.1:1", "pulsar-admin tenants get ", "pulsar-admin tenants g") == [
        "",
        "get",
    ]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_script_asks_for_words(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert magnetar.main(["completion", shell]) == 0
    assert "magnetar completion words" in capsys.readouterr().out
