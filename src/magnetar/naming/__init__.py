"""Names of topics, namespaces, bundles and replicators, and their hashes; depends on nothing else."""

from magnetar.naming.bundles import BundleRange, Bundles
from magnetar.naming.hashes import (
    bundle_hash,
    java_string_hash,
    murmur3_32,
    murmur3_positive,
    topic_list_hash,
)
from magnetar.naming.name_rules import MAX_NAME_BYTES, InvalidName, check_subscription_name
from magnetar.naming.namespace_name import NamespaceName
from magnetar.naming.topic_name import Domain, TopicName, decode_path_piece, encode_path_piece

__all__ = [
    "MAX_NAME_BYTES",
    "BundleRange",
    "Bundles",
    "Domain",
    "InvalidName",
    "NamespaceName",
    "TopicName",
    "bundle_hash",
    "check_subscription_name",
    "decode_path_piece",
    "encode_path_piece",
    "java_string_hash",
    "murmur3_32",
    "murmur3_positive",
    "topic_list_hash",
]
