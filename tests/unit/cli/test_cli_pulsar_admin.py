from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from magnetar.admin_client import AdminError, topic_path
from magnetar.admin_client.http import AdminHttp
from magnetar.cli import pulsar_client, pulsar_perf
from magnetar.cli.admin.arguments import AdminCommand, commands
from magnetar.cli.admin.help import example
from magnetar.cli.pulsar_admin import main
from magnetar.naming.name_rules import InvalidName

ANSWERS: dict[tuple[str, str], tuple[int, str]] = {
    ("GET", "/admin/v2/clusters"): (200, '["standalone"]'),
    ("GET", "/admin/v2/clusters/standalone"): (200, '{"serviceUrl":"http://x"}'),
    ("GET", "/admin/v2/brokers/health"): (200, "ok"),
    ("GET", "/admin/v2/persistent/public/default"): (200, '["persistent://public/default/t"]'),
    ("GET", "/admin/v2/non-persistent/public/default"): (200, "[]"),
    ("GET", "/admin/persistent/sample/standalone/ns1"): (200, "[]"),
    ("GET", "/admin/non-persistent/sample/standalone/ns1"): (200, "[]"),
    ("GET", "/admin/v2/persistent/public/default/t/stats"): (200, '{"msgInCounter":3}'),
    ("GET", "/admin/v2/persistent/public/default/t/internalStats"): (200, '{"state":"LedgerOpened"}'),
    ("GET", "/admin/v2/persistent/public/default/t/partitions"): (200, '{"partitions":0}'),
    ("GET", "/admin/v2/persistent/public/default/x/stats"): (404, '{"reason":"Topic x not found"}'),
    ("GET", "/admin/v2/persistent/public/default/h/stats"): (502, "<html>"),
    ("GET", "/admin/v2/persistent/public/default/r/stats"): (307, "/admin/v2/clusters"),
    ("GET", "/admin/v2/persistent/public/default/loop/stats"): (
        307,
        "/admin/v2/persistent/public/default/loop/stats",
    ),
    ("PUT", "/admin/v2/persistent/public/default/t/partitions"): (204, ""),
    ("PUT", "/admin/v2/persistent/public/default/t/unload"): (204, ""),
    ("PUT", "/admin/v2/persistent/public/default/t/compaction"): (204, ""),
    ("GET", "/admin/v2/persistent/public/default/t/compaction"): (200, '{"status":"SUCCESS","lastError":""}'),
    ("GET", "/admin/v2/persistent/public/default/n/compaction"): (200, '{"status":"NOT_RUN","lastError":""}'),
    ("GET", "/admin/v2/persistent/public/default/e/compaction"): (
        200,
        '{"status":"ERROR","lastError":"why"}',
    ),
    ("PUT", "/admin/v2/persistent/public/default/t"): (204, ""),
    ("DELETE", "/admin/v2/persistent/public/default/t"): (204, ""),
    ("PUT", "/admin/v2/namespaces/public/default/compactionThreshold"): (204, ""),
    ("DELETE", "/admin/v2/persistent/public/default/t/partitions"): (204, ""),
    ("POST", "/admin/persistent/sample/standalone/ns1/a%2Fb%20c/terminate"): (
        200,
        '{"ledgerId":6,"entryId":3}',
    ),
}


class Broker(HTTPServer):
    """Answers from the table; keeps what it was asked."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Questions)
        self.asked: list[tuple[str, str, str]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Questions(BaseHTTPRequestHandler):
    def _answer(self) -> None:
        server = self.server
        assert isinstance(server, Broker)
        path, _, query = self.path.partition("?")
        length = int(self.headers.get("Content-Length") or 0)
        server.asked.append((self.command, query, self.rfile.read(length).decode()))
        status, text = ANSWERS.get((self.command, path), (404, '{"reason":"nothing there"}'))
        self.send_response(status)
        if status == 307:
            self.send_header("Location", server.url + text)
            text = ""
        if path.endswith("/compactionThreshold"):
            self.send_header("Warning", '299 magnetar "it has no effect, yet"')
            self.send_header("Warning", '299 magnetar "nor has this"')
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    do_GET = do_PUT = do_POST = do_DELETE = _answer

    def log_message(self, format: str, *args: object) -> None:
        """Silent."""


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        ("clusters list", "standalone\n"),
        ("clusters get standalone", '{\n  "serviceUrl" : "http://x"\n}\n'),
        ("brokers healthcheck", "ok\n"),
        ("topics compact t", "Topic compaction requested for persistent://public/default/t\n"),
        ("topics compaction-status -w t", "Compaction was a success\n"),
        (
            "topics compaction-status n",
            "Compaction has not been run for persistent://public/default/n since broker startup\n",
        ),
        ("topics list public/default", "persistent://public/default/t\n"),
        ("topics list sample/standalone/ns1", ""),
        ("topics stats t", '{\n  "msgInCounter" : 3\n}\n'),
        ("topics stats persistent://public/default/r", "standalone\n"),
        ("topics stats-internal t", '{\n  "state" : "LedgerOpened"\n}\n'),
        ("topics get-partitioned-topic-metadata t", '{\n  "partitions" : 0\n}\n'),
        ("topics create-partitioned-topic -p 3 t", ""),
        ("topics create t", ""),
        ("topics unload t", ""),
        ("topics delete -f t", ""),
        ("topics delete-partitioned-topic t", ""),
    ],
)
def test_commands(broker: Broker, arguments: str, printed: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--admin-url", broker.url, *arguments.split(" ")]) == 0
    assert capsys.readouterr() == (printed, "")


def test_what_is_sent(broker: Broker) -> None:
    main(["--admin-url", broker.url + "/", "topics", "create-partitioned-topic", "-p", "3", "t"])
    main(["--admin-url", broker.url, "topics", "delete", "--force", "t"])
    main(["--admin-url", broker.url, "topics", "stats", "-gpb", "t"])
    assert broker.asked == [
        ("PUT", "", "3"),
        ("DELETE", "force=true", ""),
        ("GET", "getPreciseBacklog=true&subscriptionBacklogSize=true", ""),
    ]


def test_terminate_says_where(broker: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    topic = "persistent://sample/standalone/ns1/a/b c"
    assert main(["--admin-url", broker.url, "topics", "terminate", topic]) == 0
    assert capsys.readouterr().out == "Topic successfully terminated at 6:3:-1\n"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("topics stats x", "Topic x not found (HTTP 404)"),
        ("topics stats h", "refused (HTTP 502)"),
        ("topics stats loop", "redirected too often"),
        ("topics stats a/b", "invalid short topic name 'a/b'"),
        ("topics list one", "invalid namespace name 'one'"),
        ("nonsense", "Unknown command: 'nonsense'"),
        ("topics nonsense", "Unknown command: 'topics nonsense'"),
        ("topics list", "Missing required parameter: 'namespaceName'"),
        ("topics list a/b c", "Unmatched argument: 'c'"),
        ("topics list a/b --nope", "Unknown option: '--nope'"),
        ("topics skip t -n 3", "Missing required option: '--subscription'"),
        ("topics skip t -s s -n x", "Invalid value for option '--count'"),
        ("topics offload t -s few", "Invalid value for option '--size-threshold'"),
        ("functions create --jar a.jar", "functions create: Functions are not supported"),
        ("source list", "sources list: Sources are not supported"),
        ("topic list public/default", "did you mean topics"),
        ("topics create-partitoned-topic t", "did you mean create-partitioned-topic"),
        ("topics stats t --get-precise-backlogs", "did you mean --get-precise-backlog"),
        ("topics stats t -o yaml", "must be one of text, json, table"),
        ("topics stats t --request-timeout", "Missing required parameter for option '--request-timeout'"),
        ("namespaces set-deduplication a/b", "Need to specify either enable or disable"),
    ],
)
def test_failures_are_told_in_a_line_and_end_with_1(
    broker: Broker, arguments: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--admin-url", broker.url, *arguments.split(" ")]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("pulsar-admin: ")
    assert told in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("url", ["127.0.0.1:8080", "pulsar://x:1", "http://127.0.0.1:1"])
def test_a_broker_that_cannot_be_asked(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--admin-url", url, "clusters", "list"]) == 1
    assert url in capsys.readouterr().err


def test_without_a_command_the_help_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 1
    told = capsys.readouterr().out
    assert "To begin with:" in told
    shown = [line.split() for line in told.splitlines() if line.startswith("  pulsar-admin ")]
    assert len(shown) > 3
    for _, group, name, *rest in shown:
        command = commands()[f"{group} {name}"]
        options = {each for option in command.options for each in option.names}
        assert {word for word in rest if word.startswith("-")} <= options
    assert main(["--help"]) == 0
    told = capsys.readouterr().out
    assert "topics  " in told
    assert "Functions are not supported" in told


def test_options_of_all_commands_may_stand_anywhere(
    broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    for line in (
        "--admin-url URL clusters list",
        "clusters --admin-url URL list",
        "clusters list --admin-url=URL",
    ):
        assert main(line.replace("URL", broker.url).split(" ")) == 0
        assert capsys.readouterr() == ("standalone\n", "")
    assert main(["clusters", "list", "-v"]) == 0
    assert "Magnetar" in capsys.readouterr().out
    # A value that looks like an option belongs to the option in front of it.
    assert main(["--admin-url", broker.url, "topics", "skip", "t", "-n", "3", "-s", "-v"]) == 1
    assert broker.asked[-1][0] == "POST"


@pytest.mark.parametrize(
    ("line", "printed"),
    [
        ("clusters list -o json", '[\n  "standalone"\n]\n'),
        ("clusters list -o table", "standalone\n"),
        ("clusters get standalone -o table", "serviceUrl  http://x\n"),
        ("clusters get standalone --output text", '{\n  "serviceUrl" : "http://x"\n}\n'),
    ],
)
def test_answers_have_the_form_that_is_wanted(
    broker: Broker, line: str, printed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--admin-url", broker.url, *line.split(" ")]) == 0
    assert capsys.readouterr() == (printed, "")


def test_paths_of_topics() -> None:
    assert topic_path("t") == "/admin/v2/persistent/public/default/t"
    assert topic_path("a/b/c d") == "/admin/v2/persistent/a/b/c%20d"
    assert topic_path("non-persistent://a/b/c") == "/admin/v2/non-persistent/a/b/c"
    assert topic_path("persistent://a/global/b/c/d") == "/admin/persistent/a/global/b/c%2Fd"
    with pytest.raises(InvalidName):
        topic_path("a/b")


@pytest.mark.parametrize(
    ("line", "sent"),
    [
        (
            "namespaces set-retention a/b --time=2h -s 10M",
            ("POST", '{"retentionTimeInMinutes": 120, "retentionSizeInMB": 10}'),
        ),
        (
            "namespaces set-retention a/b -t -1 -s -1",
            ("POST", '{"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}'),
        ),
        ("namespaces set-compaction-threshold a/b -t 1G", ("PUT", "1073741824")),
        ("topics set-replicated-subscription-status t -s s --enable", ("POST", "true")),
        ("topics set-replicated-subscription-status t -s s -d", ("POST", "false")),
        (
            "topics create-subscription t -s s -m 3:4 -p a=b -p c=d",
            ("PUT", '{"ledgerId": 3, "entryId": 4, "properties": {"a": "b", "c": "d"}}'),
        ),
        ("topicPolicies set-message-ttl t -t 1m", ("POST", "")),
        ("tenants create x -c a,b", ("PUT", '{"adminRoles": [], "allowedClusters": ["a", "b"]}')),
    ],
)
def test_options_become_requests(broker: Broker, line: str, sent: tuple[str, str]) -> None:
    main(["--admin-url", broker.url, *line.split(" ")])
    method, _, body = broker.asked[-1]
    assert (method, body) == sent


def test_every_command_of_the_table_can_tell_how_it_is_used(capsys: pytest.CaptureFixture[str]) -> None:
    for name in commands():
        assert main([*name.split(" "), "--help"]) == 0
        told = capsys.readouterr().out
        assert name in told
        assert f"  pulsar-admin {name}" in told


@pytest.mark.parametrize("command", commands().values(), ids=lambda command: command.name)
def test_every_example_is_understood(command: AdminCommand) -> None:
    command.parse(example(command))


def test_a_group_lists_its_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topics", "--help"]) == 0
    assert "create-subscription" in capsys.readouterr().out
    assert main(["functions", "--help"]) == 0
    assert "(not supported) " in capsys.readouterr().out


def test_what_the_broker_does_not_honour_is_told_and_the_command_succeeds(
    broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["namespaces", "set-compaction-threshold", "public/default", "-t", "1M"]
    assert main(["--admin-url", broker.url, *command]) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "pulsar-admin: warning: it has no effect, yet\npulsar-admin: warning: nor has this\n"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("--auth-plugin a.B clusters list", "unknown plugin 'a.B'"),
        ("--auth-plugin token clusters list", "the token is empty"),
        ("--auth-plugin tls --auth-params tlsCertFile:c,tlsKeyFile:k clusters list", "requires TLS"),
        ("--request-timeout soon clusters list", "is not a number of seconds"),
        ("--request-timeout 99999999999999999999 clusters list", "is not a number of seconds"),
        ("tenants get a\udcff", "'a\\udcff' is not UTF-8"),
        ("topics stats a\udcff", "'a\\udcff' is not UTF-8"),
        ("--request-timeout", "Missing required parameter"),
        ("--tls-allow-insecure=no clusters list", "Unknown option: '--tls-allow-insecure'"),
        ("--admin-url https://127.0.0.1:1 --tls-trust-cert-path /none clusters list", "/none cannot be read"),
    ],
)
def test_root_options_that_are_refused(arguments: str, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments.split(" ")) == 1
    assert told in capsys.readouterr().err


def test_root_options_that_change_nothing_are_taken(
    broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    line = f"--admin-url {broker.url} --tls-provider OPENSSL --tls-enable-hostname-verification"
    assert main([*line.split(" "), "--request-timeout=7", "clusters", "list"]) == 0
    assert capsys.readouterr() == ("standalone\n", "")
    assert main(["--version"]) == 0
    assert "Magnetar" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("program", "arguments"),
    [
        (pulsar_client.main, "generate_documentation"),
        (pulsar_perf.main, "managed-ledger -n 3"),
        (pulsar_perf.main, "managed-ledger"),
    ],
)
def test_commands_that_are_not_there_are_answered_alike(
    program: Callable[[list[str]], int], arguments: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert program(arguments.split(" ")) == 1
    assert capsys.readouterr().err.endswith(" is not supported by this release yet\n")


def test_no_redirect_leads_out_of_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def answer(_http: AdminHttp, _method: str, url: str, *_sent: str | None) -> Any:
        asked.append(url)
        return 307, {"location": "https://b/x" if len(asked) == 1 else "HTTP://c/x"}, b""

    monkeypatch.setattr(AdminHttp, "_exchange", answer)
    with pytest.raises(AdminError, match="redirects from https to http"):
        AdminHttp("https://a").ask("GET", "/x")
    assert asked == ["https://a/x", "https://b/x"]


def test_a_password_in_an_address_is_not_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--admin-url", "http://me:kept@127.0.0.1:1", "clusters", "list"]) == 1
    told = capsys.readouterr().err
    assert "http://127.0.0.1:1" in told
    assert "kept" not in told


@pytest.mark.parametrize(
    "text",
    [
        '{"serviceUrl": "http://a:1", "brokerClientTlsEnabled": true, "peerClusterNames": ["b", "c"]}',
        "---\n# of us\nserviceUrl: http://a:1 # there\nbrokerClientTlsEnabled: true\n"
        "\npeerClusterNames: [b, 'c']\nlistenerName:\n",
    ],
)
def test_a_cluster_is_told_by_a_file_and_flags_count_before_it(
    broker: Broker, text: str, tmp_path: Path
) -> None:
    (tmp_path / "cluster").write_text(text)
    line = ["clusters", "create", "x", "--cluster-config-file", str(tmp_path / "cluster")]
    main(["--admin-url", broker.url, *line, "--broker-url", "pulsar://a:2"])
    told = json.loads(broker.asked[-1][2])
    assert told["serviceUrl"] == "http://a:1"
    assert told["brokerServiceUrl"] == "pulsar://a:2"
    assert told["brokerClientTlsEnabled"] is True
    assert told["peerClusterNames"] == ["b", "c"]
    assert "listenerName" not in told
    main(["--admin-url", broker.url, *line, "--url", "http://b:1"])
    assert json.loads(broker.asked[-1][2])["serviceUrl"] == "http://b:1"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("serviceURL: http://a:1", "a cluster has no field 'serviceURL'; did you mean serviceUrl"),
        ("serviceUrl: x\n  nested: y", "line 2 must be 'name: value'"),
        ("{", "is not JSON"),
        (None, "cannot be read"),
    ],
)
def test_a_file_that_tells_of_no_cluster(
    broker: Broker, text: str | None, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if text is not None:
        (tmp_path / "cluster").write_text(text)
    line = ["clusters", "update", "x", "--cluster-config-file", str(tmp_path / "cluster")]
    assert main(["--admin-url", broker.url, *line]) == 1
    assert told in capsys.readouterr().err
    assert broker.asked == []


def test_deleting_by_pattern_or_file(
    broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--admin-url", broker.url, "topics", "delete", "-r", "persistent://public/default/."]) == 0
    assert main(["--admin-url", broker.url, "topics", "delete", "-r", "public/default/(", "-f"]) == 1
    assert "is not a valid pattern" in capsys.readouterr().err
    names = tmp_path / "names"
    names.write_text("t\n\npublic/default/gone\n")
    assert main(["--admin-url", broker.url, "topics", "delete", "--from-file", str(names), "-f"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "public/default/gone could not be deleted: nothing there" in err
    assert "1 of 2 topics could not be deleted" in err
    assert [query for method, query, _ in broker.asked if method == "DELETE"] == [
        "",
        "force=true",
        "force=true",
    ]
