"""Which tests a change touches."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from tools.check import touched


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
