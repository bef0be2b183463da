"""Each command line against a broker that asks who it is, by ``client.conf``, environment and flags."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from secured import SUPERUSER, SecuredServer, token

from magnetar.cli import magnetar, pulsar_admin, pulsar_client, pulsar_perf

Main = Callable[[list[str]], int]
TOKEN = "org.apache.pulsar.client.impl.auth.AuthenticationToken"
TLS = "org.apache.pulsar.client.impl.auth.AuthenticationTls"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredServer]:
    server = SecuredServer(tmp_path_factory.mktemp("secured"))
    try:
        server.start()
        yield server
    finally:
        server.close()


@pytest.fixture
def configure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., None]:
    """Writes a ``client.conf`` that commands read."""

    def write(**settings: str) -> None:
        path = tmp_path / "client.conf"
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        monkeypatch.setenv("PULSAR_CLIENT_CONF", str(path))

    return write


def commands(topic: str, folder: Path) -> list[tuple[Main, list[str]]]:
    perf = ["-m", "20", "-s", "64", "-r", "0", "--warmup-time", "0", "--json", str(folder / "figures")]
    return [
        (pulsar_admin.main, ["tenants", "list"]),
        (pulsar_client.main, ["produce", topic, "-m", "one,two"]),
        (pulsar_client.main, ["consume", topic, "-s", "s", "-p", "Earliest", "-n", "2"]),
        (pulsar_perf.main, ["produce", topic, *perf]),
        (pulsar_perf.main, ["produce", topic, *perf, "--raw"]),
        (pulsar_perf.main, ["read", topic, "-n", "20"]),
        (pulsar_perf.main, ["read", topic, "-n", "20", "--raw"]),
        (magnetar.main, ["storage", "report", "--json"]),
        (magnetar.main, ["produce", topic, "three"]),
        (magnetar.main, ["tail", topic, "--no-follow"]),
    ]


@pytest.mark.parametrize("way", ["token", "tls", "plain"])
def test_every_command_with_client_conf(
    secured: SecuredServer,
    configure: Callable[..., None],
    way: str,
    topic: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pair = secured.authority.client(SUPERUSER)
    proofs = {
        "token": (TOKEN, f"token:{token(SUPERUSER)}"),
        "tls": (TLS, f"tlsCertFile:{pair.certificate},tlsKeyFile:{pair.key}"),
        "plain": ("token", f"file://{tmp_path}/token"),
    }
    (tmp_path / "token").write_text(token(SUPERUSER) + "\n")
    plain = way == "plain"
    where = {
        "brokerServiceUrl": secured.url if plain else secured.tls_url,
        "webServiceUrl": secured.http_url if plain else secured.https_url,
    }
    plugin, params = proofs[way]
    told = {
        **where,
        "tlsTrustCertsFilePath": secured.authority.trust,
        "authPlugin": plugin,
        "authParams": params,
    }
    configure(**told)
    for main, words in commands(topic, tmp_path):
        assert main(words) == 0, (words, capsys.readouterr().err)
        assert token(SUPERUSER) not in "".join(capsys.readouterr())


def test_every_command_without_a_proof(
    secured: SecuredServer,
    configure: Callable[..., None],
    topic: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One each: the broker makes an address that fails more often wait."""
    configure(brokerServiceUrl=secured.url, webServiceUrl=secured.http_url)
    for main, words in dict(commands(topic, tmp_path)).items():
        assert main(words) == 1, words
        assert "uthenticat" in capsys.readouterr().err


def test_flags_beat_the_file(
    secured: SecuredServer, configure: Callable[..., None], topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    configure(
        brokerServiceUrl="pulsar://127.0.0.1:1", webServiceUrl="http://127.0.0.1:1", authPlugin="no.such"
    )
    proof = ["--auth-plugin", "token", "--auth-params", token(SUPERUSER)]
    trust = secured.authority.trust
    admin = ["--admin-url", secured.https_url, "--tls-trust-cert-path", trust, *proof]
    assert pulsar_admin.main([*admin, "tenants", "list"]) == 0
    client = ["--url", secured.tls_url, "--tlsTrustCertsFilePath", trust, *proof]
    assert pulsar_client.main([*client, "produce", topic, "-m", "x"]) == 0
    perf = ["-u", secured.tls_url, "--trust-cert-file", trust, *proof]
    assert pulsar_perf.main(["read", topic, "-n", "1", *perf]) == 0
    capsys.readouterr()
    assert pulsar_admin.main([*admin[:2], *proof, "tenants", "list"]) == 1
    assert "certificate" in capsys.readouterr().err
    assert pulsar_admin.main([*admin[:2], "--tls-allow-insecure", *proof, "tenants", "list"]) == 0


def test_what_pulsar_client_prints(
    secured: SecuredServer,
    configure: Callable[..., None],
    topic: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    configure(brokerServiceUrl=secured.url, authPlugin="token", authParams=token(SUPERUSER))
    (tmp_path / "content").write_bytes(b"of a file,\nwhole")
    line = [
        "produce",
        topic,
        "-m",
        "a;b",
        "-s",
        ";",
        "-f",
        str(tmp_path / "content"),
        "-n",
        "2",
        "-r",
        "1000",
    ]
    assert pulsar_client.main([*line, "-k", "key", "-p", "x=1", "-p", "y=2", "-p", "z=3"]) == 0
    assert capsys.readouterr().err == "6 messages successfully produced\n"
    listen = ["consume", topic, "-s", "s", "-p", "Earliest", "-t", "Shared"]
    assert pulsar_client.main([*listen, "-n", "3"]) == 0
    out, err = capsys.readouterr()
    assert err == "3 messages successfully consumed\n"
    parts = out.split("----- got message -----\n")[1:]
    assert [part.partition("key:")[2] for part in parts] == [
        f"[key], properties:[x=1, y=2, z=3], content:{content}\n"
        for content in ("a", "b", "of a file,\nwhole")
    ]
    assert all(part.startswith("publishTime:[1") for part in parts)
    # What was acknowledged does not come again.
    assert pulsar_client.main([*listen, "-n", "2", "--hex"]) == 0
    assert "00000000 61" + " " * 46 + "a\n" in capsys.readouterr().out
    assert pulsar_client.main([*listen, "--hide-content"]) == 0
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("produce t", "Please supply message content"),
        ("produce t -f /not/there", "/not/there"),
        ("produce t -m a -p x", "'x' is not a property; use KEY=VALUE"),
        ("produce t -m a -n 0", "is below 1"),
        ("--proxy-url x produce t -m a", "'x' is not a service URL; use a form like pulsar:"),
        ("consume t", "--subscription-name"),
        ("consume t -s s --auth-parms=token:kept", "Unknown option: '--auth-parms'"),
    ],
)
def test_what_pulsar_client_refuses(
    secured: SecuredServer,
    configure: Callable[..., None],
    arguments: str,
    told: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    configure(brokerServiceUrl=secured.url, authPlugin="token", authParams=token(SUPERUSER))
    try:
        code = pulsar_client.main(arguments.split(" "))
    except SystemExit as ending:
        code = int(str(ending.code))
    out, err = capsys.readouterr()
    assert code == 1
    assert told in err
    assert "kept" not in out + err


def test_figures_of_pulsar_perf_tell_no_secret(
    secured: SecuredServer, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = tmp_path / "figures"
    line = ["produce", topic, "-u", secured.url, "-m", "5", "--warmup-time", "0", "--json", str(figures)]
    proof = token(SUPERUSER)
    assert pulsar_perf.main([*line, "--auth-plugin", "token", "--auth-params", proof]) == 0
    assert json.loads(figures.read_text())
    assert proof not in figures.read_text() + "".join(capsys.readouterr())
