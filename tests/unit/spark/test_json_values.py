"""Contents in JSON, as other clients write them and garbage that some do."""

from __future__ import annotations

import json
import math
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import DoubleType, StructField, StructType

from magnetar.spark.codec.decoders import BAD_VALUES, decoder_of
from magnetar.spark.codec.encoders import encoder_of
from magnetar.spark.codec.schemas import NOTHING, Definition
from magnetar.spark.options import QueryOptions
from magnetar.spark.writing.contents import Content

TEXTS = {"type": "array", "items": "string"}
BY_NAME = {"type": "map", "values": "string"}
OPTIONS = {"service.url": "pulsar://h:1", "admin.url": "http://h:2", "topic": "t"}


def record(kind: Any) -> Definition:
    fields = [{"name": "a", "type": kind}]
    return Definition("JSON", json.dumps({"type": "record", "name": "r", "fields": fields}))


def decoded(kind: Any, text: str) -> Any:
    return decoder_of(record(kind), record(kind))(text.encode())["a"]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (TEXTS, '{"a": "letters"}'),
        (TEXTS, '{"a": {"x": "y"}}'),
        (TEXTS, '{"a": 1}'),
        (BY_NAME, '{"a": ["x"]}'),
        (BY_NAME, '{"a": "x"}'),
        (["null", BY_NAME], '{"a": 1}'),
        ("int", "[1]"),
        ("int", "[" * 100_000),
        ("int", '{"a": ' * 100_000),
    ],
)
def test_what_has_another_shape_is_malformed_and_nothing_else(kind: Any, text: str) -> None:
    with pytest.raises(BAD_VALUES):
        decoded(kind, text)


def test_what_has_the_shape_is_taken() -> None:
    assert decoded(TEXTS, '{"a": ["x", "y"]}') == ["x", "y"]
    assert decoded(BY_NAME, '{"a": {"x": "y"}}') == {"x": "y"}
    assert decoded(["null", TEXTS], '{"a": null}') is None


@pytest.mark.parametrize("kind", ["double", "float", ["null", "double"]])
def test_numbers_that_json_has_no_form_for_are_texts_as_java_writes_them(kind: Any) -> None:
    written = encoder_of(record(kind), ["a"])
    for number, text in ((math.inf, "Infinity"), (-math.inf, "-Infinity"), (math.nan, "NaN"), (1.5, None)):
        (content,) = written(pa.record_batch({"a": pa.array([number])})).to_pylist()
        assert json.loads(content) == {"a": number if text is None else text}
        assert repr(decoded(kind, content)) == repr(number)
    # As Python's clients write them.
    assert math.isnan(decoded(kind, '{"a": NaN}'))
    assert decoded(kind, '{"a": "other"}') == "other"


def test_rows_without_a_schema_are_json_that_others_read() -> None:
    content = Content(StructType([StructField("a", DoubleType())]), QueryOptions.parse(OPTIONS))
    rows = pa.record_batch({"a": pa.array([math.nan, 0.5])})
    found = content.for_topic("t", NOTHING).encoded(rows).to_pylist()
    assert found == ['{"a":"NaN"}', '{"a":0.5}']
