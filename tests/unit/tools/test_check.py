"""Which tests a change touches."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3]))

from tools.check import modules_of, touched


def test_a_module_touches_the_tests_that_reach_it_over_others() -> None:
    tests = touched(["src/magnetar/naming/hashes.py"])
    assert any(test.startswith("tests/unit/naming/") for test in tests)
    assert any(test.startswith("tests/unit/broker/") for test in tests)
    assert "tests/unit/tools/test_check.py" not in tests


def test_a_test_and_its_data_touch_themselves() -> None:
    assert touched(["tests/unit/naming/test_topic_name.py"]) == ["tests/unit/naming/test_topic_name.py"]
    of_data = touched(["tests/unit/naming/data/topic_names.tsv"])
    assert "tests/unit/naming/test_topic_name.py" in of_data
    assert "tests/unit/protocol/test_generated.py" in touched(["tests/unit/protocol/conftest.py"])


def test_what_all_tests_share_touches_all() -> None:
    assert touched(["tests/harness/world.py"]) == ["tests/unit"]
    assert touched(["docs/spark.md"]) == []


@pytest.mark.parametrize(
    ("path", "test"),
    [
        ("src/magnetar/config/settings.tsv", "tests/unit/config/test_config_settings.py"),
        ("src/magnetar/cli/admin/commands.tsv", "tests/unit/cli/test_cli_pulsar_admin.py"),
        ("src/magnetar/left_out.tsv", "tests/unit/http/test_left_out.py"),
        ("src/magnetar/protocol/pulsar_api.proto", "tests/unit/protocol/test_generated.py"),
        ("src/magnetar/http/openapi/shapes.tsv", "tests/unit/http/test_http_endpoints.py"),
        ("src/magnetar/http/dashboard/page/topic.js", "tests/unit/http/test_http_endpoints.py"),
        ("deploy/helm/magnetar/values.yaml", "tests/unit/deploy/test_deploy.py"),
    ],
)
def test_tables_and_pages_touch_the_tests_of_what_reads_them(path: str, test: str) -> None:
    assert test in touched([path])


def test_a_table_is_the_module_of_its_name_alone() -> None:
    assert modules_of("src/magnetar/left_out.tsv", {"magnetar", "magnetar.left_out", "magnetar.errors"}) == {
        "magnetar.left_out"
    }
    known = {"magnetar", "magnetar.a", "magnetar.a.b", "magnetar.a.records_pb2", "magnetar.c"}
    assert modules_of("src/magnetar/a/records.proto", known) == {"magnetar.a.records_pb2"}
    assert modules_of("src/magnetar/a/page/x.js", known) == {
        "magnetar.a",
        "magnetar.a.b",
        "magnetar.a.records_pb2",
    }
