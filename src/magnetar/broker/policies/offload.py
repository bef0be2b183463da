"""Policies of tiered storage: ``OffloadPolicies`` from the broker's settings, a namespace and a topic, field
by field.

A topic's value takes precedence over its namespace's, and the namespace's over the broker's, as in Pulsar
(https://pulsar.apache.org/docs/4.0.x/cookbooks-tiered-storage/). Credentials never leave the broker: answers
have :data:`MASK` in their place, and a policy that is written with the mask keeps the stored credentials.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from functools import lru_cache

from magnetar.broker.policies.values import Json, fields, whole
from magnetar.errors import MetadataFailure, PreconditionFailed
from magnetar.managed_ledger.settings import OffloadPolicy, OffloadStorage

DRIVER = "managedLedgerOffloadDriver"
THRESHOLD_BYTES = "managedLedgerOffloadThresholdInBytes"
THRESHOLD_SECONDS = "managedLedgerOffloadThresholdInSeconds"
DELETION_LAG = "managedLedgerOffloadDeletionLagInMillis"
READ_PRIORITY = "managedLedgerOffloadedReadPriority"
MASK = "*****"
SECRETS = ("s3ManagedLedgerOffloadCredentialSecret",)
ZEROES: Json = {
    "offloadersDirectory": "./offloaders",
    "managedLedgerOffloadMaxThreads": 2,
    "managedLedgerOffloadReadThreads": 2,
    "managedLedgerOffloadPrefetchRounds": 1,
    "managedLedgerExtraConfigurations": {},
    "s3ManagedLedgerOffloadMaxBlockSizeInBytes": 64 << 20,
    "s3ManagedLedgerOffloadReadBufferSizeInBytes": 1 << 20,
    "s3ManagedLedgerOffloadRoleSessionName": "pulsar-s3-offload",
    "gcsManagedLedgerOffloadMaxBlockSizeInBytes": 128 << 20,
    "gcsManagedLedgerOffloadReadBufferSizeInBytes": 1 << 20,
}
"""The default ``OffloadPolicies`` of Pulsar."""
_FIRST_IN_STORE = ("bookkeeper-first", "BOOKKEEPER_FIRST")
_FIRST_IN_TIERED_STORAGE = ("tiered-storage-first", "TIERED_STORAGE_FIRST")
PRIORITIES = (*_FIRST_IN_STORE, *_FIRST_IN_TIERED_STORAGE)
_OF_LEDGERS = frozenset((DRIVER, THRESHOLD_BYTES, THRESHOLD_SECONDS, DELETION_LAG, READ_PRIORITY))
_OLD_FIELDS = {
    "offload_threshold": THRESHOLD_BYTES,
    "offload_threshold_in_seconds": THRESHOLD_SECONDS,
    "offload_deletion_lag_ms": DELETION_LAG,
}
"""Older fields of namespaces; each applies if ``offload_policies`` does not set its counterpart."""
OFFLOAD_FIELDS = ("offload_policies", *_OLD_FIELDS)
"""All fields of a namespace's policies that concern offloading."""


def merged(above: Json, own: object) -> Json:
    """Returns the fields of the level above, overridden by the fields of ``own``; null fields of ``own`` have
    no effect.

    :raises MetadataFailure: ``own`` is not an object
    """
    return {**above, **{name: value for name, value in fields(own or {}).items() if value is not None}}


def of_namespace(above: Json, policies: Json) -> Json:
    """Returns the offload policies of a namespace.

    :raises MetadataFailure: the policies of the namespace are not in Pulsar's form
    """
    own = dict(fields(policies.get("offload_policies") or {}))
    for old, name in _OLD_FIELDS.items():
        value = policies.get(old)
        if own.get(name) is None and value is not None and value != -1:
            own[name] = value
    return merged(above, own) if own else above


def remove_old_fields(policies: MutableMapping[str, object]) -> None:
    """Removes the older fields, as Pulsar does when it removes ``offload_policies``."""
    for name in _OLD_FIELDS:
        if policies.get(name) is not None:
            policies[name] = None if name == "offload_deletion_lag_ms" else -1


def offload_policy(found: Json, *, on_load: bool = False) -> OffloadPolicy | None:
    """Returns when and where ledgers are offloaded; None if no driver is set.

    :param on_load: whether due ledgers are offloaded as soon as the topic is loaded

    :raises MetadataFailure: a value is not in Pulsar's form
    """
    driver = found.get(DRIVER)
    if not driver:
        return None
    storage = tuple(
        sorted(
            (name, str(value))
            for name, value in found.items()
            if name not in _OF_LEDGERS and value is not None and not isinstance(value, Mapping)
        )
    )
    policy = OffloadPolicy(
        OffloadStorage(str(driver), storage),
        whole(found.get(THRESHOLD_BYTES, OffloadPolicy.threshold_bytes)),
        whole(found.get(THRESHOLD_SECONDS, OffloadPolicy.threshold_seconds)),
        whole(found.get(DELETION_LAG, OffloadPolicy.deletion_lag_ms)),
        found.get(READ_PRIORITY) not in _FIRST_IN_STORE,
        on_load,
    )
    return _shared(policy)


@lru_cache(maxsize=1024)
def _shared(policy: OffloadPolicy) -> OffloadPolicy:
    """Returns the policy, or an equal policy that was returned before, so that topics share one object."""
    return policy


def check_offload(found: Json) -> None:
    """Checks offload policies that are being set, merged with the policies of the levels above.

    :raises PreconditionFailed: the driver is not supported, or one of its settings is missing or invalid
    """
    # Most brokers do not offload.
    from magnetar.offload.interface import OffloadMisconfigured
    from magnetar.offload.settings import AWS_S3, check_files, checked_driver, file_settings, s3_settings

    try:
        policy = offload_policy(found)
        if policy is None:
            return
        values = dict(policy.storage.values)
        if checked_driver(policy.storage.driver) == AWS_S3:
            s3_settings(values)
        else:
            check_files(file_settings(values))
    except (MetadataFailure, OffloadMisconfigured) as error:
        raise PreconditionFailed(str(error)) from error


def shown(value: object) -> object:
    """Returns policies for an answer: with masks instead of credentials, and with the fields that Pulsar
    computes."""
    if not isinstance(value, Mapping):
        return value
    driver = str(value.get(DRIVER) or "").lower()
    found = {**ZEROES, **{name: each for name, each in value.items() if each is not None}}
    found |= {
        "s3Driver": driver in ("s3", "aws-s3"),
        "gcsDriver": driver == "google-cloud-storage",
        "fileSystemDriver": driver == "filesystem",
    }
    return {name: MASK if name in SECRETS and each else each for name, each in found.items()}


def unmasked(value: object, former: object) -> object:
    """Returns policies to store, with the stored credentials instead of masks.

    :param former: the stored policies, if any
    :raises PreconditionFailed: a masked credential has no stored value
    """
    if not isinstance(value, Mapping):
        return value
    kept = former if isinstance(former, Mapping) else {}
    found = dict(value)
    for name in SECRETS:
        if found.get(name) == MASK:
            if not kept.get(name):
                raise PreconditionFailed(
                    f"{name} is {MASK!r}, which stands for the stored secret, but none is stored: set the "
                    "secret itself"
                )
            found[name] = kept[name]
    return found
