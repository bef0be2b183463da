"""A secured broker with two tenants, a well-behaved publisher of one, and what the other may not change."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from secured import SUPERUSER, SecuredServer, token
from target import FOREIGN, SECRET, Target

NEIGHBOURS_TOPIC = "persistent://b/ns/neighbour"
_FOLDER = Path(__file__).parent


class Stage:
    def __init__(self, folder: Path) -> None:
        self.server = SecuredServer(
            folder,
            brokerClientAuthenticationPlugin="org.apache.pulsar.client.impl.auth.AuthenticationToken",
            brokerClientAuthenticationParameters=f"token:{token(SUPERUSER)}",
        )
        self.server.start()
        roles = (SUPERUSER, *(f"{tenant}-{kind}" for tenant in "ab" for kind in ("admin", "user")))
        http_port = int(self.server.http_url.rpartition(":")[2])
        self.target = Target(self.server.port, http_port, {role: token(role) for role in roles})
        for tenant in "ab":
            body = {"adminRoles": [f"{tenant}-admin"], "allowedClusters": ["standalone"]}
            self._do("PUT", f"tenants/{tenant}", SUPERUSER, body)
            self._do("PUT", f"namespaces/{tenant}/ns", f"{tenant}-admin")
            grant = f"namespaces/{tenant}/ns/permissions/{tenant}-user"
            self._do("POST", grant, f"{tenant}-admin", ["produce", "consume"])
        for topic, role in ((FOREIGN, "b-user"), (NEIGHBOURS_TOPIC, "b-user")):
            with self.target.client(role) as client:
                producer, _success = client.produce(topic)
                client.published(producer, [SECRET] * 10)

    def _do(self, method: str, path: str, role: str, body: Any = None) -> Any:
        status, answer = self.target.ask(method, f"/admin/v2/{path}", role, body)
        assert status in (200, 204), (method, path, status, answer)
        return json.loads(answer) if answer else None

    def of_others(self) -> dict[str, Any]:
        """What an attack of tenant ``a`` must leave as it is."""
        stats = self._do("GET", "persistent/b/ns/t/stats", "b-admin")
        return {
            "topics": self._do("GET", "persistent/b/ns", "b-admin"),
            "messages": stats["msgInCounter"],
            "subscriptions": sorted(stats["subscriptions"]),
            "policies": self._do("GET", "namespaces/b/ns", "b-admin"),
            "tenant": self._do("GET", "tenants/b", SUPERUSER),
        }

    def memory_mib(self) -> int:
        """Of the broker, without what it shares with others."""
        [found] = re.findall(
            r"^Pss:\s+(\d+)", Path(f"/proc/{self.server.pid}/smaps_rollup").read_text(), re.M
        )
        return int(found) // 1024

    def close(self) -> None:
        self.server.close()


class Measured:
    """What happened beside an attack."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.memory_mib = 0
        self.neighbour: dict[str, float] = {}
        self._ended = threading.Event()

    def __enter__(self) -> Measured:
        arguments = [self._stage.server.url, self._stage.target.tokens["b-user"], NEIGHBOURS_TOPIC]
        self._publishing = subprocess.Popen(
            [sys.executable, str(_FOLDER / "neighbour.py"), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._publishing.stdout is not None
        assert self._publishing.stdout.readline() == "ready\n"
        self._watching = threading.Thread(target=self._watch)
        self._watching.start()
        return self

    def _watch(self) -> None:
        while not self._ended.wait(0.05):
            self.memory_mib = max(self.memory_mib, self._stage.memory_mib())

    def __exit__(self, *_error: object) -> None:
        self._ended.set()
        self._watching.join()
        told, _ = self._publishing.communicate(timeout=60)
        if self._publishing.returncode == 0:
            self.neighbour = json.loads(told)


def run(stage: Stage, attack: str, seconds: float) -> Measured:
    """Runs an attack beside the neighbour.

    :param seconds: how long it may take
    :raises subprocess.CalledProcessError: it found something that it may not
    """
    with Measured(stage) as measured:
        subprocess.run(
            [sys.executable, str(_FOLDER / "run_attack.py"), attack, stage.target.written()],
            check=True,
            timeout=seconds,
        )
    return measured
