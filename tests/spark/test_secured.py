"""A broker that asks who Spark is, with TLS; what it is told is nowhere to be read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from secured import SUPERUSER, SecuredServer, token

from magnetar.client import AuthenticationToken, Client


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredServer]:
    server = SecuredServer(tmp_path_factory.mktemp("secured"))
    try:
        server.start()
        yield server
    finally:
        server.close()


def test_read_and_write_with_a_token_and_tls(
    secured: SecuredServer, spark: SparkSession, topic: str, tmp_path: Path
) -> None:
    # Logical plans, which have options in them, are shown only so.
    spark.conf.set("spark.sql.ui.explainMode", "extended")
    secret = token(SUPERUSER)
    options = {
        "service.url": secured.tls_url,
        "admin.url": secured.https_url,
        "auth.plugin": "token",
        "auth.params": f"token:{secret}",
        "tls.trust.certs": secured.authority.trust,
        "topic": topic,
    }
    with Client(secured.url, authentication=AuthenticationToken(secret)) as client:
        producer = client.create_producer(topic)
        for content in (b"a", b"b"):
            producer.send(content)
    read = spark.read.format("pulsar").options(**options).load()
    assert sorted(bytes(row["value"]) for row in read.select("value").collect()) == [b"a", b"b"]
    read.select("value").write.format("pulsar").options(**options).option("topic", f"{topic}-out").mode(
        "append"
    ).save()
    copied = spark.read.format("pulsar").options(**{**options, "topic": f"{topic}-out"}).load()
    assert copied.count() == 2
    assert secret not in read._jdf.queryExecution().toString()
    executions = spark._jsparkSession.sharedState().statusStore().executionsList()
    shown = [executions.apply(index) for index in range(executions.size())]
    assert len(shown) >= 3
    assert all(secret not in f"{each.physicalPlanDescription()} {each.details()}" for each in shown)
    assert secret not in secured.log
