"""Records of policies: JSON objects in the metadata store, changed under their version.

Those of tenants, resource groups and clusters are here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from magnetar.errors import BrokerError, ConcurrentModification, MetadataFailure
from magnetar.metadata.interface import MUST_NOT_EXIST, BadVersion, MetadataStore, Node

Record = dict[str, Any]

ATTEMPTS = 20
"""How often a change is tried when the record keeps changing in between."""


def decode(node: Node) -> Record:
    """:raises MetadataFailure: the value is not a JSON object"""
    try:
        value = json.loads(node.value or b"{}")
    except (ValueError, RecursionError) as error:
        raise MetadataFailure(f"{node.path}: not JSON: {error}") from error
    if not isinstance(value, dict):
        raise MetadataFailure(f"{node.path}: must be an object, not {type(value).__name__}")
    return value


def encode(value: Mapping[str, Any]) -> bytes:
    """Leaves out null fields, as Pulsar does."""
    kept = {key: item for key, item in value.items() if item is not None}
    return json.dumps(kept, separators=(",", ":")).encode()


async def read(metadata: MetadataStore, path: str) -> Record | None:
    """Returns None if the node does not exist, or is only a parent of others.

    :raises MetadataFailure: the value is not a JSON object
    """
    node = await metadata.get(path)
    if node is None or not node.value:
        return None
    return decode(node)


async def create(metadata: MetadataStore, path: str, value: Mapping[str, Any]) -> bool:
    """Returns False if the record exists."""
    node = await metadata.get(path)
    if node is not None and node.value:
        return False
    try:
        await metadata.put(path, encode(value), MUST_NOT_EXIST if node is None else node.version)
    except BadVersion:
        # Another broker wrote the record in between: that one stays.
        return False
    return True


async def change(
    metadata: MetadataStore, path: str, work: Callable[[Record], None], missing: BrokerError
) -> Record:
    """Applies ``work`` to a record. ``work`` is repeated if the record changed in between, so it must not
    accumulate.

    :returns: the record as written
    :param missing: raised if the record does not exist
    :raises ConcurrentModification: the record keeps changing
    :raises MetadataFailure: the stored value is not a JSON object
    """
    for _ in range(ATTEMPTS):
        node = await metadata.get(path)
        if node is None or not node.value:
            raise missing
        value = decode(node)
        work(value)
        try:
            await metadata.put(path, encode(value), node.version)
        except BadVersion:
            continue
        return value
    raise ConcurrentModification("Concurrent modification")
