"""The settings of the store of offloaded ledgers, from the broker, a namespace or a topic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from magnetar.lazy_dataclass import dataclass
from magnetar.offload.interface import OffloadMisconfigured

MIN_BLOCK_BYTES = 5 << 20
"""The minimum size in bytes that S3 accepts for a part, except the last one."""
MAX_BLOCK_BYTES = (1 << 31) - 1
DEFAULT_BLOCK_BYTES = 8 << 20
DEFAULT_READ_BYTES = 1 << 20
DEFAULT_ROLE_SESSION = "pulsar-s3-offload"
DRIVER = "managedLedgerOffloadDriver"
CLUSTER = "pulsarClusterName"
"""The setting with the name of the cluster, which is written to the metadata of objects; only the broker sets
it."""
AWS_S3, FILE_SYSTEM = "aws-s3", "filesystem"
_OTHERS = ("S3", "google-cloud-storage", "azureblob", "aliyun-oss", "transient")
"""Drivers of Pulsar that are not supported."""


@dataclass(frozen=True)
class S3Settings:
    """The location of an S3-compatible store, and the credentials for it."""

    bucket: str
    region: str = ""
    endpoint: str = ""
    """The URL of the store; empty: the URL of Amazon's store in the region."""
    key_id: str = ""
    """The id of the access key; empty: credentials come from the environment, a profile or the machine's
    role, like in other S3 programs."""
    secret: str = field(default="", repr=False)
    block_bytes: int = DEFAULT_BLOCK_BYTES
    read_bytes: int = DEFAULT_READ_BYTES
    role: str = ""
    """The ARN of the role that is assumed with the credentials for all requests; empty: no role."""
    role_session: str = DEFAULT_ROLE_SESSION
    """The name of the role's session in Amazon's logs."""
    cluster: str = ""
    """The name of the broker's cluster for the metadata of objects; empty: the metadata has no cluster."""


@dataclass(frozen=True)
class FileSettings:
    """The location of offloaded ledgers in a file system."""

    profile: str = ""
    """Comma-separated paths of Hadoop's configuration files in XML; empty: no file."""
    uri: str = ""
    """The base of offloaded ledgers, which overrides ``fs.defaultFS`` in the profile; empty: the profile
    applies."""


def checked_driver(name: str) -> str:
    """Returns the name of a supported driver in Pulsar's spelling.

    :raises OffloadMisconfigured: the driver is not supported
    """
    lower = name.lower()
    if lower in (AWS_S3, FILE_SYSTEM):
        return lower
    known = next((each for each in _OTHERS if each.lower() == lower), None)
    what = f"Pulsar's driver {known} is not supported" if known else f"there is no driver {name!r}"
    raise OffloadMisconfigured(f"{DRIVER}: {what}; use {AWS_S3} or {FILE_SYSTEM}")


def s3_settings(values: Mapping[str, str]) -> S3Settings:
    """Returns the settings of driver ``aws-s3``.

    :param values: the values by Pulsar's names (``s3ManagedLedgerOffloadBucket`` or
        ``managedLedgerOffloadBucket``, …). Names with ``s3`` take precedence; empty values count as missing
    :raises OffloadMisconfigured: a setting is missing or invalid
    """

    def value(name: str) -> str:
        return values.get(f"s3ManagedLedgerOffload{name}", "") or values.get(
            f"managedLedgerOffload{name}", ""
        )

    if not value("Region") and not value("ServiceEndpoint"):
        raise OffloadMisconfigured(
            f"driver {AWS_S3} needs a region or an endpoint: set s3ManagedLedgerOffloadRegion or "
            "s3ManagedLedgerOffloadServiceEndpoint"
        )
    if not value("Bucket"):
        raise OffloadMisconfigured(f"driver {AWS_S3} needs a bucket: set s3ManagedLedgerOffloadBucket")
    key_id, secret = value("CredentialId"), value("CredentialSecret")
    if bool(key_id) != bool(secret):
        raise OffloadMisconfigured(
            "s3ManagedLedgerOffloadCredentialId and s3ManagedLedgerOffloadCredentialSecret go together: "
            "set both or none"
        )
    _check_endpoint(value("ServiceEndpoint"))
    return S3Settings(
        value("Bucket"),
        value("Region"),
        value("ServiceEndpoint"),
        key_id,
        secret,
        min(
            DEFAULT_BLOCK_BYTES,
            _bytes("MaxBlockSizeInBytes", value("MaxBlockSizeInBytes"), DEFAULT_BLOCK_BYTES, MIN_BLOCK_BYTES),
        ),
        _bytes("ReadBufferSizeInBytes", value("ReadBufferSizeInBytes"), DEFAULT_READ_BYTES, 1 << 12),
        value("Role"),
        value("RoleSessionName") or DEFAULT_ROLE_SESSION,
        values.get(CLUSTER, ""),
    )


def _check_endpoint(endpoint: str) -> None:
    if "@" in endpoint:
        raise OffloadMisconfigured(
            "s3ManagedLedgerOffloadServiceEndpoint must not contain credentials: set "
            "s3ManagedLedgerOffloadCredentialId and s3ManagedLedgerOffloadCredentialSecret"
        )
    if endpoint and not endpoint.lower().startswith(("http://", "https://")):
        raise OffloadMisconfigured(
            f"s3ManagedLedgerOffloadServiceEndpoint={endpoint!r} must be a URL, such as https://host:9000"
        )


def _bytes(name: str, text: str, default: int, least: int) -> int:
    if not text:
        return default
    if not (text.isascii() and text.isdigit()) or not least <= int(text) <= MAX_BLOCK_BYTES:
        raise OffloadMisconfigured(
            f"managedLedgerOffload{name}={text!r} must be a number of bytes from {least} to {MAX_BLOCK_BYTES}"
        )
    return int(text)


def file_settings(values: Mapping[str, str]) -> FileSettings:
    """Returns the settings of driver ``filesystem`` from ``fileSystemProfilePath`` and ``fileSystemURI``."""
    return FileSettings(values.get("fileSystemProfilePath", ""), values.get("fileSystemURI", ""))


def check_files(settings: FileSettings) -> None:
    """Checks the settings as far as possible without reading a file.

    :raises OffloadMisconfigured: the location is missing, or not on a local or mounted file system
    """
    if settings.uri:
        local_path("fileSystemURI", settings.uri)
    elif not settings.profile:
        raise missing_place()


def missing_place() -> OffloadMisconfigured:
    """Returns the error for driver ``filesystem`` without a location."""
    return OffloadMisconfigured(
        "driver filesystem needs a folder: set fileSystemURI, such as file:///var/lib/offloaded, "
        "or fs.defaultFS in the configuration that fileSystemProfilePath names"
    )


def local_path(setting: str, uri: str) -> Path:
    """Returns the path that a ``file:`` URI or an absolute path names.

    :param setting: the name of the setting, for errors

    :raises OffloadMisconfigured: the URI is of another kind, or the path is relative
    """
    parts = urlsplit(uri)
    if parts.scheme not in ("", "file") or parts.netloc not in ("", "localhost"):
        raise OffloadMisconfigured(
            f"{setting}: {parts.scheme}://{parts.hostname or ''} is not supported: mount the file system, "
            "and set its path as file:///path"
        )
    path = unquote(parts.path) if parts.scheme else uri
    if not path.startswith("/") or "${" in path:
        raise OffloadMisconfigured(f"{setting}={uri!r} must be an absolute path, such as file:///path")
    return Path(path)
