"""What is left out is refused alike by REST and its description, and told in the documents."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from served import Served

from magnetar.http.endpoints.table import ENDPOINTS, LEFT_OUT
from magnetar.http.openapi.document import pieces
from magnetar.left_out import Subject, subjects

_DOCS = Path(__file__).parents[3] / "docs" / "admin-rest.md"


@pytest.fixture(scope="module")
def served() -> Served:
    return Served()


@pytest.mark.parametrize("subject", subjects().values(), ids=lambda subject: subject.name)
def test_every_path_says_why(served: Served, subject: Subject) -> None:
    assert subject.rows
    for row in subject.rows:
        for path in (row.path, *row.older):
            named = path.replace("{", "").replace("}", "")
            answer = served.ask(row.method, named)
            assert answer.status == 501, path
            assert json.loads(answer.body) == {"reason": subject.reason}


def test_the_description_tells_of_all_of_it() -> None:
    told = json.loads("".join(pieces((*ENDPOINTS, *LEFT_OUT), "1")))
    row = told["paths"]["/admin/v3/functions/{tenant}/{namespace}"]["get"]["responses"]
    assert not [status for status in row if status.startswith("2")]
    name = row["501"]["$ref"].rpartition("/")[2]
    assert told["components"]["responses"][name]["description"] == subjects()["functions"].reason


def test_the_documents_have_the_same_list() -> None:
    text = _DOCS.read_text()
    for subject in subjects().values():
        assert f"| {subject.reason} |" in text, subject.name


@pytest.mark.parametrize("body", ["", "{}", "no JSON", '{"seconds": "many"}'])
@pytest.mark.parametrize(("method", "name"), [("POST", ""), ("PUT", "/some"), ("DELETE", "/some")])
def test_a_broker_that_does_not_keep_its_data_itself_says_so_whatever_the_body_is(
    method: str, name: str, body: str
) -> None:
    answer = Served().ask(method, f"/admin/v2/magnetar/snapshots{name}", body)
    assert answer.status == 501
    assert b"docs/backup-clusters.md" in answer.body
