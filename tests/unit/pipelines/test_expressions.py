"""Spark SQL expressions are checked before a JVM starts: what Spark's grammar has passes."""

from __future__ import annotations

import pytest

from magnetar.spark.pipelines.configuration import check_expression
from magnetar.spark.pipelines.dlq_redrive import DlqRedriveConfig
from magnetar.spark.pipelines.dlq_report import DlqReportConfig
from magnetar.spark.pipelines.replay import ReplayConfig
from magnetar.spark.pipelines.window_aggregate import WindowAggregateConfig


@pytest.mark.parametrize(
    "text",
    [
        "",
        "__key = 'customer-5'",
        "cause IN ('a', \"b\") AND NOT attempts >= 3",
        "exists(items, x -> x.price > 1.5D)",
        "aggregate(items, 0, (sum, x) -> sum + x) > 3L",
        "__properties['trace'] RLIKE '^a' OR a <=> NULL",
        "`a b` IS NOT DISTINCT FROM value.a.b[0]",
        "__publishTime BETWEEN now() - INTERVAL 1 DAY AND TIMESTAMP '2026-01-01'",
        "get_json_object(CAST(value AS STRING), '$.a') ILIKE ANY ('x', 'y')",
        "x::int DIV 2 = 1 AND !b AND ~c & 1 = d ^ e",
        "unhex('AA') = X'AA' AND a = r'x\\d' AND b = 'it''s'",
        "CASE WHEN a THEN b ELSE TRY_CAST(c AS INT) IS NULL END",
        "(a, b) IN ((1, 2), (3, 4))",
        "EXTRACT(YEAR FROM __eventTime) NOT IN (2025, 2026)",
        "a LIKE 'x!_' ESCAPE '!'",
        "count(DISTINCT a) FILTER (WHERE b > 1)",
        "percentile_approx(a, 0.99)",
        "named_struct('a', 1, 'b', array(1, 2)).b[1]",
        "transform_values(map('a', 1), (k, v) -> v + 1)['a'] = 2",
    ],
)
def test_what_spark_parses_passes(text: str) -> None:
    check_expression("where", text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("attempts >=", "'>=' at line 1, column 10 lacks an operand"),
        ("a = 1 AND", "'AND' at line 1, column 7 lacks an operand"),
        ("foo(a", r"\) is missing after line 1, column 5"),
        ("a = 'x", "a quote is not closed"),
        ("a = 1)", r"unexpected '\)' at line 1, column 6"),
        ("a &&\nb", "unexpected '&&' at line 1, column 3"),
        ("a AND\nb c d", "unexpected 'd' at line 2, column 5"),
    ],
)
def test_other_texts_are_refused_with_the_place(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=f"is not a Spark SQL expression: {reason}$"):
        check_expression("where", text)


def test_each_expression_of_a_configuration_is_checked() -> None:
    for kind in (DlqRedriveConfig, DlqReportConfig, ReplayConfig):
        paths = {name: "/x" for name in ("path", "topic", "work") if name in kind.__dataclass_fields__}
        with pytest.raises(ValueError, match=r"^where = 'a >'"):
            kind(**paths, where="a >")  # type: ignore[arg-type]
    for section in ("aggregates", "group_by"):
        with pytest.raises(ValueError, match=rf"^{section}\.total = 'sum\('"):
            WindowAggregateConfig(topic="t", path="p", **{section: {"total": "sum("}})  # type: ignore[arg-type]
