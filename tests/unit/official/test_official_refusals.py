"""What ``magnetar.pulsar`` refuses by name, its logging, and its registration as ``pulsar``."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest

import magnetar.pulsar as pulsar

URL = "pulsar://localhost:1"


def test_refusals_name_what_is_refused() -> None:
    info = pulsar.ServiceInfo(URL)
    several = pulsar.AutoClusterFailover(info, [info])
    with pytest.raises(ValueError, match="tls_trust_certs_file_path is not supported when service_url is"):
        pulsar.Client(several, tls_trust_certs_file_path="x.pem")
    with pytest.raises(ValueError, match="authentication is not supported when service_url is"):
        pulsar.Client(several, pulsar.AuthenticationToken("t"))
    with pytest.raises(NotImplementedError):
        pulsar.Client(pulsar.ServiceInfoProvider())
    with pytest.raises(pulsar.OperationNotSupported, match="AuthenticationAthenz is not supported"):
        pulsar.AuthenticationAthenz("{}")
    with pytest.raises(pulsar.OperationNotSupported, match=r"'auth\.so', a plugin of the C\+\+ client"):
        pulsar.Authentication("auth.so", "")


def test_arguments_of_a_wrong_type_are_refused() -> None:
    with pytest.raises(ValueError, match="operation_timeout_seconds is expected to be of type 'int'"):
        pulsar.Client(URL, operation_timeout_seconds="5")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="Argument authentication is expected to be either None or of type"):
        pulsar.Client(URL, authentication="token")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="not a service URL"):
        pulsar.Client("ftp://localhost")
    with pytest.raises(ValueError, match="Argument token"):
        pulsar.AuthenticationToken(5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="Argument password"):
        pulsar.AuthenticationBasic("name")
    with pytest.raises(ValueError, match="Logger is expected"):
        pulsar.Client(URL, logger="console")
    with pytest.raises(ValueError, match="also provide sticky_ranges"):
        pulsar.ConsumerKeySharedPolicy(pulsar.KeySharedMode.Sticky)
    with pytest.raises(ValueError, match="Invalid Range: 5-4"):
        pulsar.ConsumerKeySharedPolicy(pulsar.KeySharedMode.Sticky, sticky_ranges=[(5, 4)])
    with pytest.raises(ValueError, match="with overlap: one ends at 10, another begins at 5"):
        pulsar.ConsumerKeySharedPolicy(pulsar.KeySharedMode.Sticky, sticky_ranges=[(5, 20), (0, 10)])
    with pytest.raises(ValueError, match="must be greater than 0"):
        pulsar.ConsumerDeadLetterPolicy(0)
    client = pulsar.Client(URL)
    with pytest.raises(TypeError, match="Argument message_routing_mode is expected"):
        client.create_producer("t", message_routing_mode=3)  # type: ignore[arg-type]
    client.close()


def test_credentials_are_given_in_json_too() -> None:
    basic = pulsar.AuthenticationBasic(auth_params_string='{"username": "u", "password": "p"}')
    assert (basic.method, basic.data()) == ("basic", b"u:p")
    assert isinstance(basic, pulsar.Authentication)


def test_options_without_effect_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    pulsar.Client(URL, io_threads=4, concurrent_lookup_requests=5, stats_interval_in_seconds=5).close()
    told = [record.getMessage().partition(" has no effect")[0] for record in caplog.records]
    assert told == ["io_threads", "concurrent_lookup_requests"]


def test_a_client_logs_where_it_is_told_to(tmp_path: Path) -> None:
    source = logging.getLogger("magnetar.client.test")
    log = tmp_path / "client.log"
    client = pulsar.Client(URL, logger=pulsar.FileLogger(pulsar.LoggerLevel.Warn, str(log)))
    source.warning("seen")
    source.info("not seen")
    client.close()
    source.warning("not seen")
    assert log.read_text().endswith("| seen\n")
    assert log.read_text().count("\n") == 1


def test_a_program_is_told_by_its_own_logger() -> None:
    told: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: told.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.Logger("program", logging.INFO)
    logger.addHandler(handler)
    client = pulsar.Client(URL, logger=logger)
    logging.getLogger("magnetar.client.test").info("of the client")
    client.close()
    assert told == ["of the client"]


def test_message_ids_are_those_of_the_official_client() -> None:
    first, second = pulsar.MessageId(1, 2, 3, 4), pulsar.MessageId(1, 2, 4)
    assert (str(first), repr(first)) == ("(2,3,1,4)", "(2,3,1,4)")
    assert first < second
    assert first.serialize() == b"\x08\x02\x10\x03\x18\x01 \x04"
    assert pulsar.MessageId.deserialize(first.serialize()) == first
    assert pulsar.MessageId.wrap(first) == first
    assert str(pulsar.MessageId.latest) == "(9223372036854775807,9223372036854775807,-1,-1)"
    with pytest.raises(ValueError, match="Failed to parse serialized message id"):
        pulsar.MessageId.deserialize(b"zz")


INSTALLED = """
import magnetar.pulsar
magnetar.pulsar.install()
magnetar.pulsar.install()
import pulsar, pulsar.asyncio
from pulsar.exceptions import Timeout
from pulsar.schema import AvroSchema, Record
from pulsar.schema.definition import String
from pulsar.functions.function import Function
from pulsar.tableview import TableView
assert pulsar is magnetar.pulsar and Timeout is magnetar.pulsar.Timeout and TableView is pulsar.TableView
assert pulsar.schema.Record is Record and pulsar.asyncio.Client is not pulsar.Client
"""

TOO_LATE = """
import pulsar
import magnetar.pulsar
try:
    magnetar.pulsar.install()
except RuntimeError as error:
    assert "before anything imports pulsar" in str(error)
else:
    raise SystemExit(1)
"""


@pytest.mark.parametrize("program", [INSTALLED, TOO_LATE])
def test_the_package_is_registered_as_pulsar_before_another_is_imported(program: str) -> None:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_broker_and_the_client_do_not_import_the_package() -> None:
    imports = "import sys, magnetar.client.blocking, magnetar.cli.magnetar"
    program = f"{imports}\nassert 'magnetar.pulsar' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
