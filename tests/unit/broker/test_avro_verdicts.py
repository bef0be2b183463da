"""Verdicts about Avro definitions, as Apache Pulsar 4.0.8 gives them (``avro_verdicts.json``).

Its classes for validation and compatibility gave them, with Avro 1.11.4, for 477 definitions and 2,500 pairs.
``refused_beside_versions`` are definitions that Apache Pulsar accepts for a topic without a schema and cannot
read when the topic has one, because a default does not fit. Magnetar refuses those, except for a default that
fits a later branch of a union, which newer versions of Avro allow.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from magnetar.broker.schemas import compatibility
from magnetar.broker.schemas.data import SchemaData, SchemaType
from magnetar.errors import IncompatibleSchema, InvalidSchemaData

VERDICTS = json.loads((Path(__file__).parent / "avro_verdicts.json").read_text())
FITS_LATER_BRANCH = {
    "default union second",
    "default union third",
    "default array of union second",
    "default record union second",
    "default self object",
}


def avro(text: str) -> SchemaData:
    return SchemaData(SchemaType.AVRO, text.encode())


def valid(schema: SchemaData) -> bool:
    try:
        compatibility.validate(schema)
    except InvalidSchemaData:
        return False
    return True


def follows(before: list[SchemaData], new: SchemaData, strategy: str) -> bool:
    if strategy == "same":
        return compatibility.same(before[0], new)
    try:
        compatibility.check_producer(before, new, strategy)
    except IncompatibleSchema:
        return False
    return True


@pytest.mark.parametrize("verdict", ["valid", "refused", "refused_beside_versions"])
def test_a_definition_alone(verdict: str) -> None:
    found = {name for name, text in VERDICTS[verdict].items() if valid(avro(text))}
    expected = {"valid": set(VERDICTS["valid"]), "refused": set()}.get(verdict, FITS_LATER_BRANCH)
    assert found == expected


@pytest.mark.parametrize("strategy", ["same", "BACKWARD", "FORWARD", "FULL"])
@pytest.mark.parametrize("family", VERDICTS["families"])
def test_pairs_of_versions(family: str, strategy: str) -> None:
    known = VERDICTS["families"][family]
    schemas = {name: avro(text) for name, text in known["definitions"].items()}
    found = {
        before: [name for name in schemas if name != before and follows([old], schemas[name], strategy)]
        for before, old in schemas.items()
    }
    assert found == known[strategy]


@pytest.mark.parametrize(
    "strategy",
    ["BACKWARD", "FORWARD", "FULL", "BACKWARD_TRANSITIVE", "FORWARD_TRANSITIVE", "FULL_TRANSITIVE"],
)
def test_rows_of_versions(strategy: str) -> None:
    fields = VERDICTS["families"]["fields"]["definitions"]
    for row in VERDICTS["chains"]:
        before = [avro(fields[name]) for name in row["before"]]
        allowed = follows(before, avro(fields[row["new"]]), strategy)
        assert allowed == (strategy in row["allowed"]), row


def test_a_union_is_a_schema_of_json_and_not_of_avro() -> None:
    """As in Apache Pulsar, which asks only for type AVRO."""
    assert not valid(avro('["null", "int"]'))
    assert valid(SchemaData(SchemaType.JSON, b'["null", "int"]'))
