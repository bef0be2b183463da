"""What endpoints are asked with: a name for each variable of a path, and a body of each kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

NAMES = {
    "cluster": "standalone",
    "tenant": "public",
    "namespace": "default",
    "topic": "t",
    "domain": "persistent",
    "subscription": "s",
    "bundle": "0x00000000_0x40000000",
    "role": "r",
    "key": "k",
    "setting": "superUserRoles",
    "value": "v",
    "version": "0",
    "plan": "p",
    "timestamp": "1",
    "numMessages": "1",
    "messagePosition": "1",
    "ledgerId": "1",
    "entryId": "0",
    "expireTimeInSeconds": "1",
}
BODIES: Mapping[str, Any] = {
    "": None,
    "AutoSubscriptionCreationOverride": {"allowAutoSubscriptionCreation": True},
    "AutoTopicCreationOverride": {"allowAutoTopicCreation": True, "topicType": "non-partitioned"},
    "BacklogQuota": {"limit": 1, "policy": "producer_exception"},
    "BookieAffinityGroupData": {},
    "ClusterData": {"serviceUrl": "http://127.0.0.1:8080"},
    "DelayedDeliveryPolicies": {"tickTime": 1, "active": True},
    "DispatchRate": {"dispatchThrottlingRateInMsg": 1, "ratePeriodInSecond": 1},
    "EntryFilters": {"entryFilterNames": "f"},
    "InactiveTopicPolicies": {
        "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
        "maxInactiveDurationSeconds": 1,
        "deleteWhileInactive": True,
    },
    "MessageId": {"ledgerId": 1, "entryId": 0},
    "OffloadPolicies": {},
    "PartitionedTopicMetadata": 1,
    "PersistencePolicies": {
        "bookkeeperEnsemble": 1,
        "bookkeeperWriteQuorum": 1,
        "bookkeeperAckQuorum": 1,
        "managedLedgerMaxMarkDeleteRate": 0,
    },
    "Policies": {},
    "PostSchemaPayload": {"type": "STRING", "schema": "", "properties": {}},
    "PublishRate": {"publishThrottlingRateInMsg": 1000},
    "ReadPlanRequest": {},
    "ResetCursorData": {"ledgerId": 1, "entryId": 0},
    "RetentionPolicies": {"retentionTimeInMinutes": 1, "retentionSizeInMB": 1},
    "SchemaAutoUpdateCompatibilityStrategy": "Full",
    "SchemaCompatibilityStrategy": "FULL",
    "SubscribeRate": {"subscribeThrottlingRatePerConsumer": 1, "ratePeriodInSecond": 1},
    "SubscriptionAuthMode": "None",
    "TenantInfo": {"adminRoles": [], "allowedClusters": ["standalone"]},
    "array<AuthAction>": ["produce"],
    "array<SubscriptionType>": ["Shared"],
    "array<string>": ["standalone"],
    "bool": True,
    "int": 1,
    "long": 1,
    "map<string,string>": {"k": "v"},
    "string": "x",
}
"""Something that fits each kind of body."""
