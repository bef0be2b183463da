"""A namespace is made with policies as they may be set one by one, and with no others."""

from __future__ import annotations

import json
from typing import Any

import pytest
from served import Served

NEW = "/admin/v2/namespaces/public/new"


@pytest.fixture(scope="module")
def served() -> Served:
    found = Served()
    assert found.ask("PUT", "/admin/v2/clusters/c2", '{"serviceUrl":"http://127.0.0.1:1"}').status == 200
    tenant = {"allowedClusters": ["standalone", "c2"]}
    assert found.ask("POST", "/admin/v2/tenants/public", json.dumps(tenant)).status == 204
    return found


RATE = {"dispatchThrottlingRateInMsg": 5, "ratePeriodInSecond": 1}


@pytest.mark.parametrize(
    ("policies", "status"),
    [
        ({"message_ttl_in_seconds": -3}, 412),
        ({"message_ttl_in_seconds": "soon"}, 400),
        ({"max_producers_per_topic": -2}, 412),
        ({"subscription_types_enabled": ["Exclusive", "Nope"]}, 400),
        ({"schema_compatibility_strategy": "NOPE"}, 400),
        ({"auth_policies": {"namespace_auth": {"r": ["produce", "nope"]}}}, 400),
        ({"auth_policies": {"namespace_auth": ["r"]}}, 400),
        ({"auth_policies": {"destination_auth": {"t": {"r": "produce"}}}}, 400),
        ({"backlog_quota_map": {"nope": {"limit": 5, "policy": "producer_exception"}}}, 400),
        ({"backlog_quota_map": {"destination_storage": {"limit": 5}}}, 400),
        ({"topicDispatchRate": {"standalone": 5}}, 400),
        ({"topicDispatchRate": {"elsewhere": 5}}, 400),
        ({"properties": {"a": [1]}}, 400),
        ({"properties": 5}, 400),
        ({"bundles": 5}, 400),
        ({"bundles": {"numBundles": 2.5}}, 400),
        ({"entryFilters": {"entryFilterNames": "nope"}}, 400),
        ({"resource_group_name": "nope"}, 412),
        ({"replication_clusters": ["c2"], "allowed_clusters": ["standalone"]}, 400),
        ({"allowed_clusters": ["nope"]}, 403),
        ({"autoTopicCreationOverride": {"allowAutoTopicCreation": True, "topicType": "x"}}, 412),
        ({"offload_threshold": "5 GB"}, 400),
        ({"offload_policies": {"managedLedgerOffloadDriver": "azureblob"}}, 412),
        ({"offload_policies": {"managedLedgerOffloadDriver": "aws-s3"}}, 412),
        ({"offload_policies": {"managedLedgerOffloadDriver": "filesystem"}}, 412),
        ({"migrated": "moved"}, 400),
    ],
)
def test_what_cannot_be_set_alone_makes_no_namespace(
    served: Served, policies: dict[str, Any], status: int
) -> None:
    told = served.ask("PUT", NEW, json.dumps(policies))
    assert told.status == status, told.body
    assert served.ask("GET", NEW).status == 404


def test_all_that_it_is_given_counts_and_what_nobody_knows_is_left_aside(served: Served) -> None:
    assert served.ask("PUT", "/admin/v2/resourcegroups/group", "{}").status == 204
    given = {
        "auth_policies": {
            "namespace_auth": {"r": ["produce", "consume"]},
            "destination_auth": {"persistent://public/new/t": {"s": ["consume"]}},
            "subscription_auth_roles": {"sub": ["r"]},
        },
        "backlog_quota_map": {"destination_storage": {"limitSize": 5, "policy": "producer_exception"}},
        "bundles": {"numBundles": "2"},
        "clusterDispatchRate": {"standalone": RATE},
        "dispatcherPauseOnAckStatePersistentEnabled": False,
        "message_ttl_in_seconds": "30",
        "properties": {"a": "b"},
        "replication_clusters": ["standalone"],
        "resource_group_name": "group",
        "subscription_types_enabled": ["Shared"],
        "topicDispatchRate": {"standalone": RATE},
    }
    # What Pulsar's clients send besides: all that nobody has set.
    unset = {
        "clusterSubscribeRate": {},
        "deleted": True,
        "is_allow_auto_update_schema": None,
        "max_unacked_messages_per_consumer": -1,
        "migrated": False,
        "offload_threshold": -1,
        "schema_compatibility_strategy": "UNDEFINED",
        "subscription_auth_mode": "None",
        "unknown": {"to": "everybody"},
    }
    assert served.ask("PUT", NEW, json.dumps({**given, **unset})).status == 204
    found = served.get(NEW)
    quota = {"limit": 5, "limitSize": 5, "limitTime": 0, "policy": "producer_exception"}
    boundaries = ["0x00000000", "0x80000000", "0xffffffff"]
    rate = {"standalone": {"dispatchThrottlingRateInByte": 0, "relativeToPublishRate": False, **RATE}}
    expected = {
        **given,
        "backlog_quota_map": {"destination_storage": quota},
        "bundles": {"boundaries": boundaries, "numBundles": 2},
        "message_ttl_in_seconds": 30,
        "clusterDispatchRate": rate,
        "topicDispatchRate": rate,
        "deleted": False,
    }
    assert {name: found[name] for name in expected} == expected
    assert not found.keys() & {"unknown", "max_unacked_messages_per_consumer"}
    # What is read can be written: a namespace is made like another one.
    assert served.ask("PUT", f"{NEW}er", json.dumps(found)).status == 204
    assert served.get(f"{NEW}er") == found
