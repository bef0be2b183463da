"""Resource groups over HTTP, and that what they say counts at once."""

from __future__ import annotations

import json

from served import Served

GROUPS = "/admin/v2/resourcegroups"
NAMESPACE = "/admin/v2/namespaces/public/default"


def status(served: Served, method: str, path: str, body: str | None = None) -> int:
    return served.ask(method, path, body or "").status


def test_groups_come_change_and_go() -> None:
    served = Served()
    assert served.get(GROUPS) == []
    assert status(served, "GET", f"{GROUPS}/g") == 404
    assert status(served, "PUT", f"{GROUPS}/g", '{"publishRateInMsgs": 5, "dispatchRateInBytes": 7}') == 204
    assert served.get(GROUPS) == ["g"]
    unbounded = {"publishRateInBytes": -1, "dispatchRateInMsgs": -1}
    assert served.get(f"{GROUPS}/g") == {"publishRateInMsgs": 5, "dispatchRateInBytes": 7, **unbounded}
    assert status(served, "PUT", f"{GROUPS}/g", '{"publishRateInMsgs": 6}') == 204
    assert served.get(f"{GROUPS}/g") == {"publishRateInMsgs": 6, "dispatchRateInBytes": 7, **unbounded}
    assert status(served, "PUT", f"{GROUPS}/g", '{"publishRateInMsgs": "many"}') == 400
    assert status(served, "PUT", f"{GROUPS}/g") == 400
    assert status(served, "DELETE", f"{GROUPS}/g") == 204
    assert status(served, "DELETE", f"{GROUPS}/g") == 404
    assert served.get(GROUPS) == []


def test_a_namespace_is_in_a_group_that_is_there_and_keeps_it() -> None:
    served = Served()
    refused = served.ask("POST", f"{NAMESPACE}/resourcegroup/g", "")
    assert (refused.status, json.loads(refused.body)["reason"]) == (412, "ResourceGroup does not exist")
    assert status(served, "PUT", f"{GROUPS}/g", '{"dispatchRateInMsgs": 5}') == 204
    assert status(served, "POST", f"{NAMESPACE}/resourcegroup/g") == 204
    assert served.get(f"{NAMESPACE}/resourcegroup") == "g"
    assert served.get(NAMESPACE)["resource_group_name"] == "g"
    kept = served.ask("DELETE", f"{GROUPS}/g", "")
    assert (kept.status, json.loads(kept.body)["reason"]) == (412, "ResourceGroup is in use")
    assert status(served, "DELETE", f"{NAMESPACE}/resourcegroup") == 204
    assert status(served, "DELETE", f"{GROUPS}/g") == 204


def test_topics_of_the_namespace_go_by_the_group() -> None:
    served = Served()
    topic = served.topic("persistent://public/default/t")
    assert topic.group is None
    served.ask("PUT", f"{GROUPS}/g", '{"dispatchRateInMsgs": 5, "publishRateInBytes": 7}')
    served.ask("POST", f"{NAMESPACE}/resourcegroup/g", "")
    assert topic.group is not None
    assert (topic.group.rates.dispatch_messages, topic.group.rates.publish_size) == (5, 7)
    assert topic.group.dispatch.limited
    served.ask("PUT", f"{GROUPS}/g", '{"dispatchRateInMsgs": 0}')
    assert not topic.group.dispatch.limited
    served.ask("DELETE", f"{NAMESPACE}/resourcegroup", "")
    assert topic.group is None
