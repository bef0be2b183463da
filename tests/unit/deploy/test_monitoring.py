"""The dashboard and the alerts ask for metrics that there are, by labels that they have."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from magnetar.http.metrics.exposition import meaning_of

MONITORING = Path(__file__).parents[3] / "deploy" / "monitoring"
_METRIC = re.compile(r"\b((?:pulsar|magnetar)_\w+)")


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((MONITORING / "dashboard.json").read_text())
    return found


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((MONITORING / "alerts.yaml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def expressions() -> list[str]:
    of_panels = [target["expr"] for panel in dashboard()["panels"] for target in panel.get("targets", ())]
    of_variables = [
        variable["query"]["query"]
        for variable in dashboard()["templating"]["list"]
        if isinstance(variable["query"], dict)
    ]
    return of_panels + of_variables + [rule["expr"] for rule in rules()]


@pytest.mark.parametrize("expression", expressions())
def test_what_is_asked_for_is_a_metric(expression: str) -> None:
    names = _METRIC.findall(expression)
    assert names or expression.startswith("up{")
    for name in names:
        assert meaning_of(name), name
    assert expression.count("(") == expression.count(")")
    assert expression.count("{") == expression.count("}")


def test_panels_stand_beside_each_other() -> None:
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells


def test_every_alert_says_what_is_the_matter() -> None:
    for rule in rules():
        assert rule["annotations"]["summary"]
        assert rule["labels"]["severity"] in ("warning", "critical")
    assert len({rule["alert"] for rule in rules()}) == len(rules())
