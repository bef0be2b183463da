"""A bundle is given up by DELETE: only where it has no topics, unless that is forced; the topics stay."""

from __future__ import annotations

import json

from served import Served

NAMESPACE = "/admin/v2/namespaces/public/halves"
TOPICS = "/admin/v2/persistent/public/halves"
LOWER, UPPER = "0x00000000_0x80000000", "0x80000000_0xffffffff"


def reason(served: Served, bundle: str, namespace: str = NAMESPACE, **query: str) -> tuple[int, str]:
    answer = served.ask("DELETE", f"{namespace}/{bundle}", "", query)
    return answer.status, json.loads(answer.body)["reason"] if answer.body else ""


def test_only_bundles_without_topics_are_deleted_unless_forced() -> None:
    served = Served()
    assert served.ask("PUT", NAMESPACE, json.dumps({"bundles": {"numBundles": 2}})).status == 204
    assert reason(served, LOWER) == (204, "")
    assert served.get(f"{NAMESPACE}/bundles")["numBundles"] == 2
    names = [f"t{number}" for number in range(8)]
    for name in names:
        assert served.ask("PUT", f"{TOPICS}/{name}").status == 204
    for bundle in (LOWER, UPPER):
        assert reason(served, bundle) == (409, "Cannot delete non empty bundle")
    assert len(served.broker.topics.loaded) > len(names)
    for bundle in (LOWER, UPPER):
        assert reason(served, bundle, force="true") == (204, "")
    assert not [name for name in served.broker.topics.loaded if "/halves/" in name]
    assert len(served.get(TOPICS)) == len(names)
    # Who asks for a topic has its bundle taken again.
    assert served.ask("GET", f"{TOPICS}/t0/stats").status == 200


def test_what_is_no_bundle_is_told() -> None:
    served = Served()
    assert reason(served, "zzz") == (404, "Namespace not found")
    namespace = "/admin/v2/namespaces/public/default"
    assert reason(served, "zzz", namespace) == (412, "Invalid bundle range: zzz")
    status, text = reason(served, "0x00000000_0x80000001", namespace)
    assert (status, text.partition(".")[0]) == (
        412,
        "Invalid upper boundary for bundle public/default/0x00000000_0x80000001",
    )
