"""The description of the HTTP interface for OpenAPI tools, generated from the table of endpoints
(https://spec.openapis.org/oas/v3.1.0).
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from http import HTTPStatus
from pathlib import Path

from magnetar.http.engine.bodies import FORM
from magnetar.http.engine.message import JSON_TYPE
from magnetar.http.routing import Endpoint, Parameter
from magnetar.http.shapes.fields import ACTIONS
from magnetar.http.shapes.policies import AUTO_UPDATE_STRATEGIES, QUOTA_TYPES, STRATEGIES, SUBSCRIPTION_TYPES

_VARIABLE = re.compile(r"\{(\w+)\}")
_USUAL = {"{tenant}", "{property}", "{namespace}", "{topic}"}
"""Path variables that do not appear in operation ids."""
_NO_WORD = re.compile(r"\W+")
_KINDS = {"truth": "boolean", "whole": "integer", "text": "string"}
_CONDITION = "if-none-match"
_ELSEWHERE = "another broker answers the request; Location has its address"
Schema = dict[str, object]
_PLAIN: Mapping[str, Schema] = {
    "bool": {"type": "boolean"},
    "int": {"type": "integer", "format": "int32"},
    "long": {"type": "integer", "format": "int64"},
    "double": {"type": "number", "format": "double"},
    "string": {"type": "string"},
    "object": {"type": "object"},
}
_CHOICES: Mapping[str, Sequence[str]] = {
    "AuthAction": ACTIONS,
    "AutoFailoverPolicyType": ("min_available",),
    "BacklogQuotaType": QUOTA_TYPES,
    "InactiveTopicDeleteMode": ("delete_when_no_subscriptions", "delete_when_subscriptions_caught_up"),
    "NamespaceIsolationPolicyUnloadScope": ("all_matching", "none", "changed"),
    "OffloadedReadPriority": ("BOOKKEEPER_FIRST", "TIERED_STORAGE_FIRST"),
    "ProxyProtocol": ("SNI",),
    "RetentionPolicy": ("producer_request_hold", "producer_exception", "consumer_backlog_eviction"),
    "SchemaAutoUpdateCompatibilityStrategy": AUTO_UPDATE_STRATEGIES,
    "SchemaCompatibilityStrategy": STRATEGIES,
    "SubscriptionAuthMode": ("None", "Prefix"),
    "SubscriptionType": SUBSCRIPTION_TYPES,
}
_LIST = re.compile(r"(?:array|set)<(.+)>")
_MAP = re.compile(r"map<[^,]+,\s*(.+)>")
ERROR = "ErrorData"
"""The schema name of error bodies."""


def pieces(endpoints: Sequence[Endpoint], version: str) -> Iterator[str]:
    """Yields the description in pieces, one for each path, so that creating it does not block the event loop.

    :param version: the version of Magnetar
    """
    head = {
        "openapi": "3.1.0",
        "info": {
            "title": "Magnetar",
            "version": version,
            "description": "Apache Pulsar's administration and lookup, and Magnetar's additions.",
        },
        "servers": [{"url": "/"}],
        "security": [{}, {"token": []}, {"password": []}],
    }
    yield f'{_json(head)[:-1]},"paths":{{'
    paths = _by_path(endpoints)
    refusals: dict[str, object] = {}
    comma = ""
    for path, methods in paths.items():
        operations = {each.method.lower(): _operation(each, path, refusals) for each in methods}
        yield f"{comma}{_json(path)}:{_json(operations)}"
        comma = ","
    components = {
        "schemas": component_schemas(),
        "responses": refusals,
        "parameters": {_CONDITION: _if_none_match()},
        "headers": {"ETag": {"description": "of these bytes", "schema": {"type": "string"}}},
        "securitySchemes": {
            "token": {"type": "http", "scheme": "bearer"},
            "password": {"type": "http", "scheme": "basic"},
        },
    }
    tags = [{"name": name} for name in sorted({_tag(path) for path in paths})]
    yield f'}},"components":{_json(components)},"tags":{_json(tags)}}}'


def _by_path(endpoints: Sequence[Endpoint]) -> dict[str, list[Endpoint]]:
    """Groups endpoints by path; legacy paths are included."""
    paths: dict[str, list[Endpoint]] = {}
    for endpoint in endpoints:
        for path in (endpoint.path, *endpoint.aliases):
            paths.setdefault(path, []).append(endpoint)
    return paths


def operation_id(method: str, path: str) -> str:
    """Returns the operation id, from which tools derive method names, such as ``getPersistentStats``.

    Ids for paths without ``v2`` contain ``V1``.
    """
    pieces = path.strip("/").split("/")
    older = ""
    if pieces[0] == "admin":
        older = "" if pieces[1] == "v2" else "V1"
        pieces = pieces[1:] if older else pieces[2:]
    words = [_camel(piece) for piece in pieces if _VARIABLE.search(piece) is None or piece not in _USUAL]
    last = _VARIABLE.fullmatch(pieces[-1])
    if last is not None:
        words = [*words[: len(words) - (pieces[-1] not in _USUAL)], f"By{_capital(last[1])}"]
    return f"{method.lower()}{older}{''.join(words)}"


def _camel(piece: str) -> str:
    if _VARIABLE.search(piece) is None:
        return _capital(piece)
    return f"Of{_capital(_VARIABLE.sub(lambda found: found[1], piece))}"


def _capital(text: str) -> str:
    return "".join(word[:1].upper() + word[1:] for word in _NO_WORD.split(text))


def _operation(endpoint: Endpoint, path: str, refusals: dict[str, object]) -> dict[str, object]:
    """Returns the description of an operation.

    :param refusals: the descriptions of error responses by name; the function adds the errors of this
        operation
    """
    operation: dict[str, object] = {
        "operationId": operation_id(endpoint.method, path),
        "summary": endpoint.description,
        "tags": [_tag(path)],
        "parameters": [
            *map(_in_path, _VARIABLE.findall(path)),
            *map(_in_query, endpoint.parameters),
            *([{"$ref": f"#/components/parameters/{_CONDITION}"}] if endpoint.tagged else []),
        ],
        "responses": {
            str(status): _response(endpoint, status, why, refusals)
            for status, why in _answers(endpoint).items()
        },
        "x-allowed-by": str(endpoint.operation),
    }
    if endpoint.body:
        form = FORM if endpoint.reads_as_it_comes else JSON_TYPE
        operation["requestBody"] = {"content": {form: {"schema": schema_of(endpoint.body)}}}
    if path != endpoint.path:
        operation["deprecated"] = True
        operation["description"] = f"An older path of {endpoint.path}."
    return operation


def _answers(endpoint: Endpoint) -> Mapping[int, str]:
    answers = dict(endpoint.answers)
    if endpoint.asked_of_owner:
        answers.setdefault(HTTPStatus.TEMPORARY_REDIRECT, _ELSEWHERE)
    return dict(sorted(answers.items()))


def _response(endpoint: Endpoint, status: int, why: str, refusals: dict[str, object]) -> dict[str, object]:
    if endpoint.tagged and status in (HTTPStatus.OK, HTTPStatus.NOT_MODIFIED):
        return {"description": why, "headers": {"ETag": {"$ref": "#/components/headers/ETag"}}}
    if status < HTTPStatus.BAD_REQUEST:
        return {"description": why}
    # Named components, because most are the same everywhere.
    name = f"{status}-{_NO_WORD.sub('-', why)}"
    schema = {"$ref": f"#/components/schemas/{ERROR}"}
    refusals[name] = {"description": why, "content": {"application/json": {"schema": schema}}}
    return {"$ref": f"#/components/responses/{name}"}


def _in_path(name: str) -> dict[str, object]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}


def _in_query(parameter: Parameter) -> dict[str, object]:
    schema: dict[str, object] = {"type": _KINDS[parameter.type]}
    if parameter.default:
        schema["default"] = _default(parameter)
    return {"name": parameter.name, "in": "query", "schema": schema}


def _if_none_match() -> dict[str, object]:
    return {
        "name": "If-None-Match",
        "in": "header",
        "description": "ETags of known versions: 304 if the version is one of them",
        "schema": {"type": "string"},
    }


def _default(parameter: Parameter) -> object:
    if parameter.type == "truth":
        return parameter.default == "true"
    return int(parameter.default) if parameter.type == "whole" else parameter.default


def _tag(path: str) -> str:
    """Returns the tag that groups operations: the first significant segment of the path."""
    pieces = [piece for piece in path.split("/") if piece not in ("", "admin", "v2", "v3", "lookup")]
    if path.startswith("/lookup"):
        return "lookup"
    return pieces[0] if pieces and not pieces[0].startswith("{") else "magnetar"


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def schema_of(kind: str) -> Schema:
    """Returns the JSON schema for a type name in the table of endpoints or of fields."""
    kind = kind.strip().partition(" ")[0].removesuffix("?")
    if kind in _PLAIN:
        return dict(_PLAIN[kind])
    if found := _LIST.fullmatch(kind):
        return {"type": "array", "items": schema_of(found[1])}
    if found := _MAP.fullmatch(kind):
        return {"type": "object", "additionalProperties": schema_of(found[1])}
    if kind in _CHOICES:
        return {"type": "string", "enum": list(_CHOICES[kind])}
    if kind in _records():
        return {"$ref": f"#/components/schemas/{kind}"}
    return {"type": "object"}


@cache
def _records() -> Mapping[str, Sequence[tuple[str, str, str]]]:
    """Returns the fields of each record type, each field with name, type and meaning."""
    found: dict[str, list[tuple[str, str, str]]] = defaultdict(list)
    for line in (Path(__file__).parent / "shapes.tsv").read_text("utf-8").splitlines():
        record, name, kind, meaning = line.split("\t")
        found[record].append((name, kind, meaning))
    return found


def component_schemas() -> dict[str, Schema]:
    """Returns the JSON schemas of all record types by name."""
    schemas: dict[str, Schema] = {
        record: {
            "type": "object",
            "properties": {name: _nullable(kind, meaning) for name, kind, meaning in fields},
        }
        for record, fields in _records().items()
    }
    schemas[ERROR] = {"type": "object", "properties": {"reason": {"type": "string"}}, "required": ["reason"]}
    return schemas


def _nullable(kind: str, meaning: str) -> Schema:
    return {"anyOf": [schema_of(kind), {"type": "null"}], "description": meaning}
