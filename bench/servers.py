"""The compared servers, each started without data and with fsync enabled."""

from __future__ import annotations

import http.client
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from bench.certificate import make_certificate
from bench.process import end, free_port
from magnetar.cli.perf.measure import cpu_seconds, resident_megabytes

START_SECONDS = 180.0


class ServerFailed(Exception):
    """A server did not start, or ended by itself."""


@dataclass
class Server:
    """A broker on this machine.

    :ivar title: what the report calls it
    :ivar group: servers of one group are configurations of one product
    """

    name: str
    title: str
    group: str
    folder: Path
    port: int = field(default_factory=free_port)
    http_port: int = field(default_factory=free_port)
    tls_port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    def command(self) -> list[str]:
        raise NotImplementedError

    def environment(self) -> dict[str, str]:
        return dict(os.environ)

    @property
    def url(self) -> str:
        return f"pulsar://127.0.0.1:{self.port}"

    @property
    def tls_url(self) -> str:
        return f"pulsar+ssl://127.0.0.1:{self.tls_port}"

    @property
    def certificate(self) -> Path:
        """Returns the certificate for the TLS port; created for each folder."""
        if not (self.folder / "server.pem").exists():
            make_certificate(self.folder)
        return self.folder / "server.pem"

    def tls_settings(self) -> dict[str, str]:
        """Returns Pulsar's settings for a TLS port in addition to the plain one."""
        return {
            "brokerServicePortTls": str(self.tls_port),
            "tlsCertificateFilePath": str(self.certificate),
            "tlsKeyFilePath": str(self.folder / "server.key"),
        }

    @property
    def admin_url(self) -> str:
        return f"http://127.0.0.1:{self.http_port}"

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def pids(self) -> list[int]:
        """Returns the ids of its process and of child processes."""
        found = [self.pid]
        for thread in Path(f"/proc/{self.pid}/task").iterdir():
            try:
                found += map(int, (thread / "children").read_text().split())
            except (FileNotFoundError, ProcessLookupError):
                continue  # The thread has ended since it was listed.
        return found

    def cpu_seconds(self) -> float:
        return cpu_seconds(self.pids())

    def resident_mb(self) -> float:
        return resident_megabytes(self.pids())

    def start(self) -> float:
        """Starts it; returns the seconds until it served the namespace public/default.

        :raises ServerFailed: the server ended, or took longer than ``START_SECONDS``
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        command = self.command()
        log = (self.folder / "log").open("ab")
        began = time.monotonic()
        self.process = subprocess.Popen(
            command, stdout=log, stderr=log, cwd=self.folder, env=self.environment()
        )
        log.close()
        while not self._serves():
            if self.process.poll() is not None:
                raise ServerFailed(f"{self.title} ended with {self.process.returncode}: see {self.folder}")
            if time.monotonic() - began > START_SECONDS:
                self.stop()
                raise ServerFailed(f"{self.title} does not serve: see {self.folder}")
            time.sleep(0.005)
        return time.monotonic() - began

    def _serves(self) -> bool:
        return self._answers("/admin/v2/namespaces/public", b"public/default")

    def _answers(self, path: str, wanted: bytes = b"") -> bool:
        """Whether the path answers 200, with the wanted bytes."""
        connection = http.client.HTTPConnection("127.0.0.1", self.http_port, timeout=5)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status == 200 and wanted in answer.read()
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def stop(self) -> None:
        if self.process is not None:
            end(self.process)


@dataclass
class Magnetar(Server):
    """This checkout, with compiled or interpreted hot modules."""

    pure: bool = False
    settings: dict[str, str] = field(default_factory=dict)

    def command(self) -> list[str]:
        config = self.folder / "standalone.conf"
        settings = self.tls_settings() | self.settings
        config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        command = [sys.executable, "-m", "magnetar", "standalone", "--data-dir", str(self.folder / "data")]
        command += ["--config", str(config)]
        return [*command, "--binary-port", str(self.port), "--http-port", str(self.http_port)]

    def environment(self) -> dict[str, str]:
        return super().environment() | ({"MAGNETAR_PURE": "1"} if self.pure else {})


_OPENED = (
    "java.base/java.io",
    "java.base/java.util.zip",
    "java.base/java.nio",
    "java.base/jdk.internal.misc",
    "java.base/sun.net",
    "java.base/jdk.internal.platform",
    "jdk.management/com.sun.management.internal",
)
_DRIVERS = "org.apache.pulsar.metadata.bookkeeper.PulsarMetadata"
_LOG4J = """<Configuration status="WARN">
  <Appenders>
    <Console name="C"><PatternLayout pattern="%d{{ISO8601}} %-5level %logger{{1}} - %msg%n"/></Console>
  </Appenders>
  <Loggers>
    <Root level="{level}"><AppenderRef ref="C"/></Root>
    <Logger name="org.apache.pulsar.testclient" level="info" additivity="false">
      <AppenderRef ref="C"/>
    </Logger>
  </Loggers>
</Configuration>
"""


def java_command(jars: Path, folder: Path, memory: list[str], level: str) -> list[str]:
    """Returns the beginning of a command line for a class of Pulsar, with its log on standard output."""
    log = folder / "log4j2.xml"
    log.write_text(_LOG4J.format(level=level))
    command = ["java", *memory]
    for package in _OPENED:
        command += ["--add-opens", f"{package}=ALL-UNNAMED"]
    command += [
        "-Dio.netty.tryReflectionSetAccessible=true",
        "-Djute.maxbuffer=10485760",
        "-Djava.net.preferIPv4Stack=true",
        f"-Dbookkeeper.metadata.bookie.drivers={_DRIVERS}BookieDriver",
        f"-Dbookkeeper.metadata.client.drivers={_DRIVERS}ClientDriver",
        f"-Dlog4j.configurationFile=file:{log}",
        "-Dlog4j2.is.webapp=false",
        "-Dlog4j.shutdownHookEnabled=false",
    ]
    return [*command, "-cp", f"{jars}/*"]


SHIPPED = ["-Xms2g", "-Xmx2g", "-XX:MaxDirectMemorySize=2g"]
SMALL = ["-Xms256m", "-Xmx256m", "-XX:MaxDirectMemorySize=256m"]
_COLLECTOR = ["-XX:+UseZGC", "-XX:+PerfDisableSharedMem", "-XX:+AlwaysPreTouch"]


@dataclass
class ApachePulsar(Server):
    """Apache Pulsar standalone: broker, bookie and metadata store (RocksDB) in one JVM."""

    jars: Path = Path()
    memory: list[str] = field(default_factory=lambda: list(SHIPPED))
    settings: dict[str, str] = field(default_factory=dict)
    bookie_port: int = field(default_factory=free_port)

    def command(self) -> list[str]:
        settings = {
            "metadataStoreUrl": "",
            "configurationMetadataStoreUrl": "",
            "clusterName": "standalone",
            "brokerServicePort": str(self.port),
            "webServicePort": str(self.http_port),
            "bindAddress": "127.0.0.1",
            "advertisedAddress": "127.0.0.1",
            "loadManagerClassName": "org.apache.pulsar.broker.loadbalance.NoopLoadManager",
            "loadBalancerEnabled": "false",
            "managedLedgerDefaultEnsembleSize": "1",
            "managedLedgerDefaultWriteQuorum": "1",
            "managedLedgerDefaultAckQuorum": "1",
            "managedLedgerCacheCopyEntries": "false",
            "allowAutoTopicCreation": "true",
            "allowAutoTopicCreationType": "non-partitioned",
            "webSocketServiceEnabled": "true",
            "transactionCoordinatorEnabled": "false",
            "allowLoopback": "true",
            "listeningInterface": "lo",
            "bookiePort": str(self.bookie_port),
            "ledgerStorageClass": "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage",
            "nettyMaxFrameSizeBytes": "5253120",
            "flushInterval": "60000",
            "journalMaxGroupWaitMSec": "1",
            # The default is false; without it a power failure may lose acknowledged messages.
            "journalSyncData": "true",
            "diskUsageThreshold": "0.99",
            "diskUsageWarnThreshold": "0.99",
            "gcWaitTime": "300000",
            **self.tls_settings(),
            **self.settings,
        }
        config = self.folder / "standalone.conf"
        config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        command = java_command(self.jars, self.folder, [*self.memory, *_COLLECTOR], "warn")
        command += ["org.apache.pulsar.PulsarStandaloneStarter", "--config", str(config), "-nfw", "-nss"]
        command += ["--metadata-dir", str(self.folder / "metadata")]
        command += ["--bookkeeper-dir", str(self.folder / "bookkeeper")]
        return [*command, "--bookkeeper-port", str(self.bookie_port), "-a", "127.0.0.1"]
