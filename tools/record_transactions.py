"""Records transactions of Apache Pulsar: `python tools/record_transactions.py FOLDER [PART...]`.

Parts are clients, errors, views and batched; without any: all. Each writes its files into FOLDER; the README
beside the recorded files says what they show. The server is Apache Pulsar standalone in a temporary folder,
with ZooKeeper as its metadata store. Java's client needs Maven and a JDK, Go's client needs Go.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "tests" / "harness"))
from java_servers import class_path
from recording_proxy import Frame
from transaction_lab import ABORT, COMMIT, TOPICS, Fields, Lab, Talk, at, named

_CLIENTS = Path(__file__).parents[1] / "tests" / "integration" / "clients"
_UNKNOWN: Fields = {"txnid_most_bits": 0, "txnid_least_bits": 123456}
_ELSEWHERE: Fields = {"txnid_most_bits": 99, "txnid_least_bits": 1}
_REST = "/admin/v3/transactions"


class Cases:
    """Conversations by case, each on a connection of its own, with those of the broker with itself."""

    def __init__(self, lab: Lab) -> None:
        self.lab, self.frames = lab, list[Frame]()

    def run(self, case: str, body: Callable[[Talk], None]) -> None:
        print(f"  {case}", flush=True)
        self.lab.proxy.take(0.1)
        talk = Talk(self.lab.server.port, self.frames, case)
        try:
            body(talk)
        except (OSError, AttributeError) as error:  # The broker closed the connection: the case ends here.
            self.frames.append({"case": case, "ended": repr(error)})
        finally:
            talk.close()
        self.frames += [{"case": case} | frame for frame in self.lab.proxy.take(0.3)]

    def rest(self, case: str, method: str, path: str, body: bytes | None = None) -> Any:
        row = self.lab.http(method, path, body)
        self.frames.append({"case": case} | row)
        return row.get("answer")


def record_clients(lab: Lab) -> None:
    """Java's and Go's client, and what they leave in the metadata store and in ledgers."""
    lab.start()
    lab.write("system_topics.jsonl", _system_topics(lab))
    warm = Cases(lab)
    warm.run("warm up", _warm_up)
    with tempfile.TemporaryDirectory() as folder:
        source = _CLIENTS / "java" / "src" / "main" / "java" / "interop" / "Transactions.java"
        subprocess.run(["javac", "-d", folder, "-cp", class_path(), str(source)], check=True)
        java = ["java", "-Xmx256m", "-cp", f"{folder}:{class_path()}", "interop.Transactions"]
        url = f"pulsar://127.0.0.1:{lab.proxy.port}"
        lab.write("java_client.jsonl", lab.client("java", [*java, url, "java"]))
        program = f"{folder}/go-client"
        subprocess.run(["go", "build", "-o", program, "."], cwd=_CLIENTS / "go", check=True)
        go = [program, "--url", url, "--scenario", "transactions", "--prefix", "go"]
        lab.write("go_client.jsonl", lab.client("go", go))
    time.sleep(6)  # A snapshot of a transaction buffer is up to five seconds late.
    lab.write("metadata.jsonl", lab.managed_ledgers())
    lab.write("entries.jsonl", lab.stored())
    lab.write(
        "coordinator_internal.jsonl", [lab.http("GET", f"{_REST}/coordinatorInternalStats/0?metadata=true")]
    )
    lab.server.stop()


def _system_topics(lab: Lab) -> list[Any]:
    """What is there before the first transaction."""
    space = "/admin/v2/persistent/pulsar/system"
    rows: list[Any] = [
        lab.http("GET", f"/admin/v2/persistent/pulsar/system{each}") for each in ("", "/partitioned")
    ]
    rows.append(lab.http("GET", f"{space}/transaction_coordinator_assign/partitions"))
    rows.append(lab.http("GET", f"{_REST}/coordinators"))
    for under in ("/admin/partitioned-topics", "/admin/policies/pulsar", "/managed-ledgers/pulsar"):
        rows += [{"path": path, "value": value.decode(errors="replace")} for path, value in lab.nodes(under)]
    return rows


def _warm_up(talk: Talk) -> None:
    """The first request for a coordinator makes the broker load it."""
    talk.ask("TC_CLIENT_CONNECT_REQUEST", tc_id=0)
    talk.producer(1, "warm-up")
    txn = talk.begin()
    talk.enlist(txn, "warm-up")
    talk.send(1, "first", txn)
    talk.end(txn, COMMIT)


def record_errors(lab: Lab) -> None:
    """Every refusal, in conversations with the broker, and the REST endpoints."""
    lab.start()
    cases = Cases(lab)
    cases.run("warm up", _warm_up)
    for name, body in _ERRORS.items():
        cases.run(name, body)
    _gone(cases)
    lab.write("errors.jsonl", cases.frames)
    marked = [row for row in lab.stored() if row["managed_ledger"].endswith("/directly")]
    lab.write("errors_entries.jsonl", marked)
    _endpoints(lab)
    lab.server.stop()


def _unknown_coordinator(talk: Talk) -> None:
    talk.ask("TC_CLIENT_CONNECT_REQUEST", tc_id=0)
    talk.ask("NEW_TXN", tc_id=98, txn_ttl_seconds=60_000)
    talk.enlist({"txnid_most_bits": 98, "txnid_least_bits": 1}, "errors")
    talk.enlist({"txnid_most_bits": 98, "txnid_least_bits": 1}, "errors", "s")
    talk.end({"txnid_most_bits": 98, "txnid_least_bits": 1}, COMMIT)
    talk.ask("TC_CLIENT_CONNECT_REQUEST", tc_id=99)
    talk.ask("NEW_TXN", tc_id=99, txn_ttl_seconds=60_000)
    talk.enlist(_ELSEWHERE, "errors")
    talk.enlist(_ELSEWHERE, "errors", "s")
    talk.end(_ELSEWHERE, COMMIT)


def _unknown_transaction(talk: Talk) -> None:
    talk.enlist(_UNKNOWN, "errors")
    talk.enlist(_UNKNOWN, "errors", "s")
    talk.end(_UNKNOWN, COMMIT)
    talk.end(_UNKNOWN, ABORT)


def _time_to_live(talk: Talk) -> None:
    talk.ask("NEW_TXN", tc_id=0)
    talk.ask("NEW_TXN", tc_id=0, txn_ttl_seconds=0)
    talk.ask("NEW_TXN", tc_id=0, txn_ttl_seconds=2**64 - 1)
    talk.ask("NEW_TXN", tc_id=0, txn_ttl_seconds=1)


def _ended(first: int) -> Callable[[Talk], None]:
    def body(talk: Talk) -> None:
        talk.producer(1, f"ended-{first}")
        txn = talk.begin()
        talk.enlist(txn, f"ended-{first}")
        talk.send(1, "one", txn)
        talk.end(txn, first)
        talk.end(txn, first)
        talk.end(txn, 1 - first)
        talk.enlist(txn, f"ended-{first}")
        talk.enlist(txn, f"ended-{first}", "s")
        talk.send(1, "after the end", txn)

    return body


def _empty(talk: Talk) -> None:
    for action in (COMMIT, ABORT):
        txn = talk.begin()
        talk.ask("ADD_PARTITION_TO_TXN", **txn)
        talk.ask("ADD_SUBSCRIPTION_TO_TXN", **txn)
        talk.end(txn, action)
        talk.end(txn, action)


def _not_enlisted(talk: Talk) -> None:
    talk.producer(1, "not-enlisted")
    talk.subscribe(1, "not-enlisted", "s")
    txn = talk.begin()
    talk.send(1, "not enlisted", txn)
    plain = talk.send(1, "plain")
    talk.end(txn, COMMIT)
    talk.messages()
    talk.acknowledge(1, [at(plain.message_id)], talk.begin())
    talk.acknowledge(1, [at(plain.message_id)], _UNKNOWN)
    talk.send(1, "of an unknown transaction", _UNKNOWN)


def _late_send(talk: Talk) -> None:
    """Of a transaction below the low-water mark, after a later one has ended."""
    talk.producer(1, "late-send")
    first, second = talk.begin(), talk.begin()
    for txn in (first, second):
        talk.enlist(txn, "late-send")
        talk.send(1, "in time", txn)
        talk.end(txn, COMMIT)
    third = talk.begin()
    talk.enlist(third, "late-send")
    talk.send(1, "in time", third)
    talk.end(third, COMMIT)
    talk.send(1, "late", first)


def _conflict(talk: Talk) -> None:
    talk.producer(1, "conflict")
    sent = [at(talk.send(1, f"m{i}").message_id) for i in range(6)]
    talk.subscribe(1, "conflict", "s")
    talk.messages()
    first, second = talk.begin(), talk.begin()
    for txn in (first, second):
        talk.enlist(txn, "conflict", "s")
    talk.acknowledge(1, [sent[0]], first)
    talk.acknowledge(1, [sent[0]], first)
    talk.acknowledge(1, [sent[0]], second)
    talk.acknowledge(1, [sent[1], sent[0]], second)
    talk.acknowledge(1, [sent[1]], second)
    talk.acknowledge(1, [sent[0]])
    talk.acknowledge(1, [{"ledgerId": 999_999, "entryId": 0}], second)
    talk.tell("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1)
    talk.messages()
    talk.end(second, ABORT)
    talk.messages()
    talk.end(first, COMMIT)
    talk.messages()
    third = talk.begin()
    talk.enlist(third, "conflict", "s")
    talk.acknowledge(1, [sent[0]], third)
    talk.acknowledge(1, [sent[2]])
    talk.acknowledge(1, [sent[2]], third)
    talk.acknowledge(1, [sent[3]], third, kind=1)
    talk.end(third, ABORT)


def _cumulative_conflict(talk: Talk) -> None:
    talk.producer(1, "cumulative")
    sent = [at(talk.send(1, f"m{i}").message_id) for i in range(6)]
    talk.subscribe(1, "cumulative", "s", kind=0)
    talk.messages()
    first, second = talk.begin(), talk.begin()
    for txn in (first, second):
        talk.enlist(txn, "cumulative", "s")
    talk.acknowledge(1, [sent[2]], first, kind=1)
    talk.acknowledge(1, [sent[1]], first, kind=1)
    talk.acknowledge(1, [sent[3]], first, kind=1)
    talk.acknowledge(1, [sent[4]], second, kind=1)
    talk.acknowledge(1, [sent[4]], second)
    talk.acknowledge(1, [sent[0]], second)
    talk.acknowledge(1, [sent[1], sent[2]], second, kind=1)
    talk.acknowledge(1, [sent[1]], kind=1)
    talk.end(first, COMMIT)
    talk.end(second, ABORT)
    talk.messages()
    talk.acknowledge(1, [sent[5]], second, kind=1)


def _batch_conflict(talk: Talk) -> None:
    """Single messages of a batch; the words of ``ack_set`` have a bit for each message that stays."""
    talk.producer(1, "batch-conflict")
    receipt = talk.send_batch(1, ["b0", "b1", "b2", "b3"])
    talk.subscribe(1, "batch-conflict", "s")
    talk.messages()
    place = at(receipt.message_id)
    first, second = talk.begin(), talk.begin()
    for txn in (first, second):
        talk.enlist(txn, "batch-conflict", "s")
    talk.acknowledge(1, [place | {"ack_set": [0b1110], "batch_size": 4}], first)
    talk.acknowledge(1, [place | {"ack_set": [0b1110], "batch_size": 4}], second)
    talk.acknowledge(1, [place | {"ack_set": [0b1101], "batch_size": 4}], second)
    talk.acknowledge(1, [place | {"ack_set": [0b1010], "batch_size": 4}], second)
    talk.acknowledge(1, [place], second)
    talk.end(first, COMMIT)
    talk.end(second, ABORT)
    talk.tell("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1)
    talk.messages()


def _time_out(talk: Talk) -> None:
    talk.producer(1, "time-out")
    receipt = talk.send(1, "plain")
    talk.subscribe(1, "time-out", "s")
    txn = talk.begin(milliseconds=1500)
    talk.enlist(txn, "time-out")
    talk.enlist(txn, "time-out", "s")
    talk.send(1, "late", txn)
    talk.acknowledge(1, [at(receipt.message_id)], txn)
    talk.messages(5)
    talk.end(txn, COMMIT)
    talk.end(txn, ABORT)
    talk.acknowledge(1, [at(receipt.message_id)])


def _directly(talk: Talk) -> None:
    """What the coordinator's broker tells other brokers, from a client."""
    talk.producer(1, "directly")
    receipt = talk.send(1, "plain")
    talk.subscribe(1, "directly", "s")
    topic = TOPICS + "directly"
    for action in (COMMIT, ABORT):
        fields: Fields = {"txn_action": action, "txnid_least_bits_of_low_watermark": 0}
        for each in (topic, TOPICS + "no-such-topic", "persistent://public/none/t"):
            talk.ask("END_TXN_ON_PARTITION", **_UNKNOWN, **fields, topic=each)
            for name in ("s", "no-such-subscription"):
                where = {"topic": each, "subscription": name}
                talk.ask("END_TXN_ON_SUBSCRIPTION", **_UNKNOWN, **fields, subscription=where)
    txn: Fields = {"txnid_most_bits": 7, "txnid_least_bits": 40}
    talk.send(1, "of coordinator 7", txn)
    talk.acknowledge(1, [at(receipt.message_id)], txn)
    for mark in (39, 41):
        fields = {"txn_action": COMMIT, "txnid_least_bits_of_low_watermark": mark}
        talk.ask("END_TXN_ON_PARTITION", **txn, **fields, topic=topic)
        where = {"topic": topic, "subscription": "s"}
        talk.ask("END_TXN_ON_SUBSCRIPTION", **txn, **fields, subscription=where)
    talk.send(1, "below the low-water mark", txn)
    talk.acknowledge(1, [at(receipt.message_id)], txn)
    talk.messages()


def _non_persistent(talk: Talk) -> None:
    topic = "non-persistent://public/default/n"
    talk.look_up(topic)
    talk.ask("PRODUCER", producer_id=1, producer_name="r1", topic=topic, txn_enabled=True)
    txn = talk.begin()
    talk.ask("ADD_PARTITION_TO_TXN", **txn, partitions=[topic])
    talk.send(1, "in a transaction", txn)
    talk.end(txn, COMMIT)


def _other_connection(talk: Talk) -> None:
    txn = talk.begin()
    other = Talk(talk.port, talk.frames, f"{talk.case}, the other")
    other.enlist(txn, "warm-up")
    other.end(txn, COMMIT)
    other.close()


_ERRORS: dict[str, Callable[[Talk], None]] = {
    "unknown coordinator": _unknown_coordinator,
    "unknown transaction": _unknown_transaction,
    "time to live": _time_to_live,
    "after a commit": _ended(COMMIT),
    "after an abort": _ended(ABORT),
    "empty": _empty,
    "not enlisted": _not_enlisted,
    "late send": _late_send,
    "conflict of acknowledgements": _conflict,
    "conflict of cumulative acknowledgements": _cumulative_conflict,
    "conflict within a batch": _batch_conflict,
    "time-out": _time_out,
    "directly": _directly,
    "non-persistent": _non_persistent,
    "other connection": _other_connection,
}


def _gone(cases: Cases) -> None:
    """Topics and subscriptions that go while a transaction is open, and such as never were."""
    base = "/admin/v2/persistent/public/default"
    acts = {
        "deleted topic": ("DELETE", "?force=true"),
        "deleted topic, not forced": ("DELETE", ""),
        "unloaded topic": ("PUT", "/unload"),
        "deleted subscription": ("DELETE", "/subscription/s?force=true"),
        "never there": None,
        "terminated topic": ("POST", "/terminate"),
    }
    for number, (name, act) in enumerate(acts.items()):
        for action, word in ((COMMIT, "commit"), (ABORT, "abort")):
            case, topic = f"{name}, {word}", f"gone-{number}-{word}"

            def body(
                talk: Talk,
                name: str = name,
                act: Any = act,
                topic: str = topic,
                case: str = case,
                action: int = action,
            ) -> None:
                txn = talk.begin()
                talk.enlist(txn, topic)
                talk.enlist(txn, topic, "s")
                if act is not None:
                    talk.producer(1, topic)
                    receipt = talk.send(1, "plain")
                    talk.subscribe(1, topic, "s")
                    talk.send(1, "in the transaction", txn)
                    talk.acknowledge(1, [at(receipt.message_id)], txn)
                    cases.rest(case, act[0], f"{base}/{topic}{act[1]}")
                    talk.messages(0.5)
                talk.end(txn, action)
                talk.messages(0.5)
                if name == "terminated topic":  # The transaction does not end.
                    talk.end(txn, 1 - action)
                    talk.enlist(txn, topic)
                cases.rest(case, "GET", f"{_REST}/transactionMetadata/0/{txn['txnid_least_bits']}")

            cases.run(case, body)


def _endpoints(lab: Lab) -> None:
    """Every endpoint below /admin/v3/transactions, with a transaction open and without."""
    frames: list[Frame] = []
    talk = Talk(lab.server.port, frames, "")
    talk.producer(1, "endpoints")
    receipts = [talk.send(1, f"plain {i}") for i in range(3)]
    talk.subscribe(1, "endpoints", "s")
    txn = talk.begin()
    talk.enlist(txn, "endpoints")
    talk.enlist(txn, "endpoints", "s")
    open_at = talk.send(1, "open", txn)
    talk.acknowledge(1, [at(receipts[1].message_id)], txn)
    aborted = talk.begin()
    talk.enlist(aborted, "endpoints")
    aborted_at = talk.send(1, "aborted", aborted)
    talk.end(aborted, ABORT)
    least, topic = txn["txnid_least_bits"], "public/default/endpoints"
    place = receipts[1].message_id
    time.sleep(1.2)
    paths = [
        "coordinators",
        "coordinatorStats",
        "coordinatorStats?coordinatorId=0",
        "coordinatorStats?coordinatorId=99",
        "coordinatorInternalStats/0",
        "coordinatorInternalStats/0?metadata=true",
        "coordinatorInternalStats/99",
        "slowTransactions/1",
        "slowTransactions/1?coordinatorId=0",
        "slowTransactions/1?coordinatorId=99",
        "slowTransactions/99999999",
        "slowTransactions/0",
        f"transactionMetadata/0/{least}",
        "transactionMetadata/0/999999",
        "transactionMetadata/99/1",
        "transactionMetadata/x/1",
    ]
    for name in (topic, "public/default/none", "public/none/none"):
        paths += [
            f"transactionBufferStats/{name}",
            f"transactionBufferStats/{name}?lowWaterMarks=true&segmentStats=true",
            f"transactionBufferInternalStats/{name}",
            f"transactionBufferInternalStats/{name}?metadata=true",
            f"transactionInBufferStats/{name}/0/{least}",
            f"transactionInBufferStats/{name}/0/{aborted['txnid_least_bits']}",
            f"transactionInBufferStats/{name}/0/999999",
        ]
        for subscription in ("s", "none"):
            paths += [
                f"pendingAckStats/{name}/{subscription}",
                f"pendingAckStats/{name}/{subscription}?lowWaterMarks=true",
                f"pendingAckInternalStats/{name}/{subscription}",
                f"pendingAckInternalStats/{name}/{subscription}?metadata=true",
                f"transactionInPendingAckStats/{name}/{subscription}/0/{least}",
                f"transactionInPendingAckStats/{name}/{subscription}/0/999999",
                f"positionStatsInPendingAck/{name}/{subscription}/{place.ledgerId}/{place.entryId}",
                f"positionStatsInPendingAck/{name}/{subscription}/{place.ledgerId}/{place.entryId}?batchIndex=0",
            ]
    for other in (receipts[0].message_id, open_at.message_id, aborted_at.message_id):
        paths.append(f"positionStatsInPendingAck/{topic}/s/{other.ledgerId}/{other.entryId}")
    rows: list[Any] = [lab.http("GET", f"{_REST}/{path}") for path in paths]
    rows += [
        lab.http("POST", f"{_REST}/abortTransaction/0/{least}"),
        lab.http("POST", f"{_REST}/abortTransaction/0/{least}"),
        lab.http("POST", f"{_REST}/abortTransaction/0/999999"),
        lab.http("POST", f"{_REST}/abortTransaction/99/1"),
        lab.http("POST", f"{_REST}/abortTransaction/x/1"),
        lab.http("GET", f"{_REST}/transactionMetadata/0/{least}"),
        lab.http("GET", f"{_REST}/transactionBufferStats/{topic}?lowWaterMarks=true"),
        lab.http("GET", f"{_REST}/pendingAckStats/{topic}/s?lowWaterMarks=true"),
        lab.http("GET", f"/admin/v2/persistent/{topic}/stats"),
        lab.http("GET", f"/admin/v2/persistent/{topic}/internalStats"),
        lab.http("POST", f"{_REST}/transactionCoordinator/replicas", b"0"),
        lab.http("POST", f"{_REST}/transactionCoordinator/replicas", b"1"),
        lab.http("POST", f"{_REST}/transactionCoordinator/replicas", b"-1"),
        lab.http("POST", f"{_REST}/transactionCoordinator/replicas", b"3"),
        lab.http("GET", "/admin/v2/persistent/pulsar/system/transaction_coordinator_assign/partitions"),
    ]
    talk.ask("TC_CLIENT_CONNECT_REQUEST", tc_id=2)
    for _ in range(2):
        rows.append(lab.http("GET", f"{_REST}/coordinators"))
        rows.append(lab.http("GET", f"{_REST}/coordinatorStats"))
        time.sleep(1)
    lab.write("rest.jsonl", rows)
    lab.write("metrics.jsonl", _metrics(lab))
    settings = lab.http("GET", "/admin/v2/brokers/configuration/runtime")["answer"]
    about = {name: value for name, value in sorted(settings.items()) if "ransaction" in name}
    lab.write("settings.jsonl", [{"setting": name, "value": value} for name, value in about.items()])
    talk.close()


def _metrics(lab: Lab) -> list[Any]:
    """Lines of the metrics page about transactions."""
    _status, page = lab.server.ask("GET", "/metrics/")
    # Metrics of topics: those of one topic are enough.
    wanted = [line for line in page.decode().splitlines() if 'topic="' not in line or '/endpoints"' in line]
    lines = [line.removeprefix("# TYPE ").partition("{") for line in wanted]
    about = re.compile("txn|transaction")
    return ["".join(line) for line in lines if about.search(line[0])]


def record_views(lab: Lab) -> None:
    """What clients and operators see of open and of aborted transactions; then with transactions off."""
    lab.start()
    cases = Cases(lab)
    cases.run("warm up", _warm_up)
    for name, body in _VIEWS.items():
        cases.run(name, partial(body, cases))
    time.sleep(6)  # A snapshot of a transaction buffer is up to five seconds late.
    lab.write("views.jsonl", cases.frames)
    lab.write("peek.jsonl", _peek_messages(lab))
    lab.server.stop()
    lab.start(transactions=False)
    off = Cases(lab)
    off.run("transactions off", _off)
    off.run("a topic with aborted messages, transactions off", partial(_left, off))
    for path in ("coordinators", "coordinatorStats", "coordinatorInternalStats/0", "slowTransactions/1"):
        off.rest("REST, transactions off", "GET", f"{_REST}/{path}")
    for path in (
        "transactionMetadata/0/1",
        "transactionBufferStats/public/default/left",
        "transactionBufferInternalStats/public/default/left",
        "transactionInBufferStats/public/default/left/0/1",
        "pendingAckStats/public/default/left/s",
        "pendingAckInternalStats/public/default/left/s",
        "transactionInPendingAckStats/public/default/left/s/0/1",
        "positionStatsInPendingAck/public/default/left/s/1/1",
    ):
        off.rest("REST, transactions off", "GET", f"{_REST}/{path}")
    off.rest("REST, transactions off", "POST", f"{_REST}/abortTransaction/0/1")
    off.rest("REST, transactions off", "POST", f"{_REST}/transactionCoordinator/replicas", b"2")
    off.frames.append({"case": "metrics, transactions off", "lines": _metrics(lab)})
    lab.server.stop()
    lab.start()
    off.run("a topic with aborted messages, transactions on again", partial(_left, off))
    lab.write("off.jsonl", off.frames)
    lab.server.stop()


def _peek_messages(lab: Lab) -> list[Fields]:
    """What Java's administration client makes of the answers to its peeking."""
    program = Path(__file__).parents[1] / "tests" / "cluster" / "programs" / "PeekTransactions.java"
    url = f"http://127.0.0.1:{lab.server.http_port}"
    asked = ["open/peek", "aborted/peek", "left/peek"]
    command = ["java", "-Xmx256m", "-cp", class_path(), str(program), url, "5", *asked]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    names = ("asked", "isolation level", "show server marker", "found")
    lines = [line.split("\t") for line in done.stdout.splitlines()]
    return [dict(zip(names, line, strict=True)) for line in lines if len(line) == len(names)]


def _peeks(cases: Cases, case: str, topic: str, subscription: str, count: int) -> None:
    base = f"/admin/v2/persistent/public/default/{topic}/subscription/{subscription}/position"
    for position in range(1, count + 1):
        cases.rest(case, "GET", f"{base}/{position}")


def _last(talk: Talk, consumer: int) -> None:
    talk.ask("GET_LAST_MESSAGE_ID", consumer_id=consumer)


def _reader(talk: Talk, number: int, topic: str, **start: Any) -> None:
    talk.look_up(TOPICS + topic)
    fields: Fields = {"consumer_id": number, "topic": TOPICS + topic, "subscription": f"reader-{number}"}
    talk.ask("SUBSCRIBE", **fields, subType=0, durable=False, consumer_name=f"c{number}", **start)
    talk.tell("FLOW", consumer_id=number, messagePermits=100)
    talk.messages()


def _open(cases: Cases, talk: Talk) -> None:
    """A message before, one inside and one behind an open transaction."""
    talk.subscribe(9, "open", "peek", permits=0)
    talk.producer(1, "open")
    sent = [at(talk.send(1, "before").message_id)]
    txn = talk.begin()
    talk.enlist(txn, "open")
    sent.append(at(talk.send(1, "inside", txn).message_id))
    sent.append(at(talk.send(1, "behind").message_id))
    talk.subscribe(1, "open", "s")
    talk.messages()
    _last(talk, 1)
    _reader(talk, 2, "open", initialPosition=1)
    _last(talk, 2)
    _reader(talk, 3, "open", initialPosition=0)
    _reader(talk, 4, "open", start_message_id=sent[1])
    _peeks(cases, talk.case, "open", "s", 4)
    base = "/admin/v2/persistent/public/default/open"
    for path in ("stats", "internalStats", "lastMessageId", "internal-info"):
        cases.rest(talk.case, "GET", f"{base}/{path}")
    for place in sent:
        cases.rest(talk.case, "GET", f"{base}/ledger/{place['ledgerId']}/entry/{place['entryId']}")
    cases.rest(talk.case, "GET", f"{base}/examinemessage?initialPosition=latest&messagePosition=1")
    cases.rest(talk.case, "GET", f"{_REST}/transactionBufferStats/public/default/open")
    talk.ask("SEEK", consumer_id=1, message_id=sent[2])
    talk.hear("CLOSE_CONSUMER", seconds=1)
    talk.subscribe(5, "open", "s")
    talk.messages()
    cases.rest(talk.case, "POST", f"{base}/subscription/s/skip/2")
    cases.rest(talk.case, "GET", f"{base}/stats")
    cases.rest(talk.case, "PUT", f"{base}/unload")
    talk.messages()
    talk.producer(6, "open")
    talk.send(6, "after the unload")
    talk.subscribe(7, "open", "t")
    talk.messages()
    talk.end(txn, COMMIT)
    talk.messages()
    _last(talk, 7)
    _peeks(cases, talk.case, "open", "t", 5)


def _aborted(cases: Cases, talk: Talk) -> None:
    """Aborted messages in the middle and at the end."""
    talk.subscribe(9, "aborted", "peek", permits=0)
    talk.producer(1, "aborted")
    talk.send(1, "before")
    for text in ("middle", "end"):
        txn = talk.begin()
        talk.enlist(txn, "aborted")
        talk.send(1, f"aborted in the {text}", txn)
        if text == "middle":
            talk.send(1, "behind")
        talk.end(txn, ABORT)
    talk.subscribe(1, "aborted", "s")
    talk.messages()
    _last(talk, 1)
    _reader(talk, 2, "aborted", initialPosition=1)
    _last(talk, 2)
    _reader(talk, 3, "aborted", initialPosition=0)
    _last(talk, 3)
    _peeks(cases, talk.case, "aborted", "s", 7)
    base = "/admin/v2/persistent/public/default/aborted"
    for path in ("stats", "internalStats", "lastMessageId"):
        cases.rest(talk.case, "GET", f"{base}/{path}")
    cases.rest(talk.case, "POST", f"{base}/subscription/s/skip/2")
    cases.rest(talk.case, "GET", f"{base}/stats")
    cases.rest(talk.case, "POST", f"{base}/subscription/s/skip_all")
    cases.rest(talk.case, "GET", f"{base}/stats")
    talk.send(1, "last")
    talk.messages()


def _pending(cases: Cases, talk: Talk) -> None:
    """Acknowledged in an open transaction: who gets it again, and when."""
    talk.producer(1, "pending")
    sent = [at(talk.send(1, f"m{i}").message_id) for i in range(5)]
    talk.subscribe(1, "pending", "s")
    talk.messages()
    txn = talk.begin()
    talk.enlist(txn, "pending", "s")
    talk.acknowledge(1, [sent[0], sent[1]], txn)
    talk.acknowledge(1, [sent[0]])  # Without a transaction, of one that is pending.
    talk.acknowledge(1, [sent[2]])
    base = "/admin/v2/persistent/public/default/pending"
    cases.rest(talk.case, "GET", f"{base}/stats")
    cases.rest(talk.case, "GET", f"{base}/internalStats")
    talk.tell("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1)
    talk.messages()
    talk.tell("CLOSE_CONSUMER", consumer_id=1)
    talk.hear("SUCCESS")
    talk.subscribe(2, "pending", "s")
    talk.messages()
    cases.rest(talk.case, "PUT", f"{base}/unload")
    talk.messages()
    talk.subscribe(3, "pending", "s")
    talk.messages()
    talk.end(txn, ABORT)
    talk.messages()
    again = talk.begin()
    talk.enlist(again, "pending", "s")
    talk.acknowledge(3, [sent[1], sent[3]], again)
    cases.rest(talk.case, "POST", f"{base}/subscription/s/skip/1")
    cases.rest(talk.case, "POST", f"{base}/subscription/s/resetcursor/1")
    cases.rest(talk.case, "POST", f"{base}/subscription/s/skip_all")
    talk.hear("CLOSE_CONSUMER", seconds=1)
    cases.rest(talk.case, "GET", f"{base}/internalStats")
    talk.end(again, COMMIT)
    talk.subscribe(4, "pending", "s")
    talk.messages()
    cases.rest(talk.case, "GET", f"{base}/internalStats")


def _unmarked(cases: Cases, talk: Talk) -> None:
    """A transaction whose messages have its id in the command only, as those of Go's client."""
    talk.producer(1, "unmarked")
    talk.send(1, "before")
    for case in ("abort", "unload"):
        txn = talk.begin()
        talk.enlist(txn, "unmarked")
        talk.send(1, f"{case}: inside", txn, marked=False)
        talk.subscribe(1, "unmarked", case)
        talk.messages()
        if case == "unload":
            cases.rest(talk.case, "PUT", "/admin/v2/persistent/public/default/unmarked/unload")
            talk.hear("CLOSE_CONSUMER", seconds=1)
            talk.subscribe(2, "unmarked", case)
            talk.messages()
        talk.end(txn, ABORT)
        talk.messages()


def _slow(cases: Cases, talk: Talk) -> None:
    """The list of slow transactions beside one of each kind."""
    slow = f"{_REST}/slowTransactions/1?coordinatorId=0"
    talk.producer(1, "slow")
    txn = talk.begin()
    time.sleep(0.1)
    cases.rest(talk.case, "GET", slow)
    talk.enlist(txn, "slow")
    cases.rest(talk.case, "GET", slow)
    talk.send(1, "inside", txn)
    cases.rest(talk.case, "GET", slow)
    talk.enlist(txn, "slow", "none")
    cases.rest(talk.case, "GET", slow)
    talk.end(txn, ABORT)
    txn = talk.begin()
    talk.enlist(txn, "never-there")
    time.sleep(0.1)
    cases.rest(talk.case, "GET", slow)
    talk.end(txn, ABORT)


def _left_behind(cases: Cases, talk: Talk) -> None:
    """A topic that is read again with transactions off."""
    talk.subscribe(9, "left", "peek", permits=0)
    talk.producer(1, "left")
    sent = at(talk.send(1, "plain").message_id)
    talk.subscribe(1, "left", "s")
    for text, action in (("committed", COMMIT), ("aborted", ABORT), ("open", None)):
        txn = talk.begin()
        talk.enlist(txn, "left")
        talk.enlist(txn, "left", "s")
        talk.send(1, text, txn)
        if action is None:
            talk.acknowledge(1, [sent], txn)
        else:
            talk.end(txn, action)
    talk.send(1, "last")
    talk.messages()


def _left(cases: Cases, talk: Talk) -> None:
    _reader(talk, 2, "left", initialPosition=1)
    _last(talk, 2)
    talk.subscribe(1, "left", "s")
    talk.messages()
    _peeks(cases, talk.case, "left", "s", 8)
    cases.rest(talk.case, "GET", "/admin/v2/persistent/public/default/left/internalStats")


def _off(talk: Talk) -> None:
    talk.ask("TC_CLIENT_CONNECT_REQUEST", tc_id=0)
    talk.ask("NEW_TXN", tc_id=0, txn_ttl_seconds=60_000)
    talk.enlist(_UNKNOWN, "off")
    talk.enlist(_UNKNOWN, "off", "s")
    talk.end(_UNKNOWN, COMMIT)
    talk.producer(1, "off")
    receipt = talk.send(1, "plain")
    talk.subscribe(1, "off", "s")
    talk.send(1, "in a transaction", _UNKNOWN)
    talk.acknowledge(1, [at(receipt.message_id)], _UNKNOWN)
    fields: Fields = {"txn_action": COMMIT, "txnid_least_bits_of_low_watermark": 0}
    talk.ask("END_TXN_ON_PARTITION", **_UNKNOWN, **fields, topic=TOPICS + "off")
    where = {"topic": TOPICS + "off", "subscription": "s"}
    talk.ask("END_TXN_ON_SUBSCRIPTION", **_UNKNOWN, **fields, subscription=where)
    talk.messages()


_VIEWS: dict[str, Callable[[Cases, Talk], None]] = {
    "open transaction": _open,
    "aborted messages": _aborted,
    "pending acknowledgements": _pending,
    "no ids in metadata": _unmarked,
    "slow transactions": _slow,
    "left behind": _left_behind,
}


def record_batched(lab: Lab) -> None:
    """Logs with several records in one entry, and snapshots in segments."""
    lab.start()
    cases = Cases(lab)

    def body(talk: Talk) -> None:
        talk.producer(1, "batched")
        talk.subscribe(1, "batched", "s")
        for _ in range(8):
            # Several requests at once, for several records in one entry.
            for _ in range(3):
                talk.tell("NEW_TXN", tc_id=0, txn_ttl_seconds=600_000)
            several = [named(talk.hear("NEW_TXN_RESPONSE")) for _ in range(3)]
            for txn in several:
                talk.tell("ADD_PARTITION_TO_TXN", **txn, partitions=[TOPICS + "batched"])
            for _ in range(3):
                talk.hear("ADD_PARTITION_TO_TXN_RESPONSE")
            places = []
            for txn in several:
                talk.enlist(txn, "batched", "s")
                talk.send(1, "in a transaction", txn)
                places.append(at(talk.send(1, "plain").message_id))
            for txn, place in zip(several, places, strict=True):
                talk.tell("ACK", consumer_id=1, ack_type=0, message_id=[place], **txn)
            for _ in range(3):
                talk.hear("ACK_RESPONSE")
            for txn in several:
                talk.tell("END_TXN", **txn, txn_action=ABORT)
            for _ in range(3):
                talk.hear("END_TXN_RESPONSE")

    cases.run("warm up", _warm_up)
    cases.run("batched", body)
    time.sleep(4)
    cases.rest("batched", "GET", f"{_REST}/transactionBufferStats/public/default/batched?segmentStats=true")
    cases.rest(
        "batched", "GET", f"{_REST}/transactionBufferInternalStats/public/default/batched?metadata=true"
    )
    for name in ("segments", "indexes"):
        schema = f"/admin/v2/schemas/public/default/__transaction_buffer_snapshot_{name}/schema"
        cases.rest("batched", "GET", schema)
    cases.run("too many", _too_many)
    rows = [row for row in cases.frames if "request" in row or row["case"] == "too many"]
    lab.write("batched.jsonl", rows)
    lab.write("batched_entries.jsonl", lab.stored())
    lab.write("batched_metadata.jsonl", lab.managed_ledgers())
    lab.server.stop()


def _too_many(talk: Talk) -> None:
    for _ in range(5):
        talk.ask("NEW_TXN", tc_id=0, txn_ttl_seconds=5000)
    talk.messages(6)
    talk.ask("NEW_TXN", tc_id=0, txn_ttl_seconds=5000)


_BATCHED = {
    "maxActiveTransactionsPerCoordinator": 4,
    "transactionLogBatchedWriteEnabled": "true",
    "transactionLogBatchedWriteMaxDelayInMillis": 50,
    "transactionPendingAckBatchedWriteEnabled": "true",
    "transactionPendingAckBatchedWriteMaxDelayInMillis": 50,
    "transactionBufferSegmentedSnapshotEnabled": "true",
    "transactionBufferSnapshotSegmentSize": 80,
    "transactionBufferSnapshotMaxTransactionCount": 4,
    "transactionBufferSnapshotMinTimeInMillis": 500,
}
_PARTS: dict[str, tuple[Callable[[Lab], None], Fields]] = {
    "clients": (record_clients, {}),
    "errors": (record_errors, {}),
    "views": (record_views, {}),
    "batched": (record_batched, _BATCHED),
}


def main(into: str, *parts: str) -> None:
    for part in parts or _PARTS:
        record, settings = _PARTS[part]
        with tempfile.TemporaryDirectory() as folder:
            lab = Lab(Path(folder) / "pulsar", Path(into), **settings)
            try:
                record(lab)
            finally:
                lab.server.close()
                lab.proxy.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
