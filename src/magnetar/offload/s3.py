"""An S3-compatible store, with the operations that offloading needs. The objects in its bucket are listed
only for users.

The library is botocore, which the extra ``offload`` installs; it is imported with the first driver for S3.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from hashlib import md5
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from magnetar.offload.blocks import parsed_object_name
from magnetar.offload.interface import (
    FoundObject,
    OffloadedLedgerDamaged,
    OffloadedLedgerMissing,
    OffloadError,
    OffloadMisconfigured,
    OffloadRefused,
    OffloadUnavailable,
)
from magnetar.offload.settings import S3Settings

if TYPE_CHECKING:
    from botocore.client import BaseClient
    from botocore.config import Config
    from botocore.credentials import DeferredRefreshableCredentials
    from botocore.loaders import Loader

T = TypeVar("T")
VERSION_NAME, VERSION = "s3managedledgeroffloaderformatversion", "1"
"""The metadata without which Pulsar refuses an object; its name must be in lower case in requests, too."""
_LISTED = 20
"""The maximum number of objects that one call lists, because each object costs a further request."""
MOST_PARTS = 10_000
"""The maximum number of parts of one multipart upload."""
_TYPE = "application/octet-stream"
_CONNECT_SECONDS, _ANSWER_SECONDS, _ATTEMPTS = 5, 25, 3
_loader: Loader | None = None
_GONE = {"NoSuchKey", "NoSuchUpload", "NotFound", "404"}
_LATER = {"BadDigest", "IncompleteBody", "RequestTimeout", "RequestTimeTooSkewed", "SlowDown", "Throttling"}
"""Codes of client errors (4xx) after which the same request may succeed."""


class Stored(NamedTuple):
    """The size and the entity tag of an object."""

    length: int
    etag: str


class S3Store:
    """One bucket of a store. Any thread may use it."""

    def __init__(self, settings: S3Settings) -> None:
        """Opens the bucket.

        :raises OffloadMisconfigured: the library is not installed, or the endpoint is invalid
        """
        self._bucket = settings.bucket
        self._client = _client(settings)

    def close(self) -> None:
        self._client.close()

    def create_upload(self, name: str, metadata: Mapping[str, str]) -> str:
        """Starts a multipart upload; returns its id.

        :param metadata: the object's metadata besides the version of the format; names in lower case, ASCII
        """
        answer = self._call(
            name,
            lambda: self._client.create_multipart_upload(
                Bucket=self._bucket,
                Key=name,
                ContentType=_TYPE,
                Metadata={**metadata, VERSION_NAME: VERSION},
            ),
        )
        return str(answer["UploadId"])

    def upload_part(self, name: str, upload_id: str, number: int, data: bytes) -> str:
        """Uploads a part, whose MD5 the store checks.

        :param number: the number of the part, from 1 on
        :return: the entity tag of the part
        """
        answer = self._call(
            name,
            lambda: self._client.upload_part(
                Bucket=self._bucket,
                Key=name,
                UploadId=upload_id,
                PartNumber=number,
                Body=data,
                ContentMD5=b64encode(_md5(data)).decode(),
            ),
        )
        return str(answer["ETag"])

    def complete_upload(self, name: str, upload_id: str, etags: Sequence[str]) -> None:
        """Joins the parts to one object. If the answer to an earlier attempt was lost, the store may no
        longer know the upload; the caller must then check whether the object is complete.

        :raises OffloadedLedgerMissing: the upload does not exist
        """
        parts = [{"PartNumber": number, "ETag": etag} for number, etag in enumerate(etags, 1)]
        self._call(
            name,
            lambda: self._client.complete_multipart_upload(
                Bucket=self._bucket, Key=name, UploadId=upload_id, MultipartUpload={"Parts": parts}
            ),
        )

    def abort_upload(self, name: str, upload_id: str) -> None:
        """Discards the parts of an upload; does nothing if the upload does not exist."""
        try:
            self._call(
                name,
                lambda: self._client.abort_multipart_upload(
                    Bucket=self._bucket, Key=name, UploadId=upload_id
                ),
            )
        except OffloadedLedgerMissing:
            return

    def unfinished_uploads(self, name: str) -> Sequence[str]:
        """Returns the ids of all unfinished uploads of exactly this object."""
        found: list[str] = []
        marker: dict[str, str] = {}
        while True:
            answer = self._call(
                name,
                lambda: self._client.list_multipart_uploads(
                    Bucket=self._bucket,
                    Prefix=name,
                    **marker,  # noqa: B023 - called at once
                ),
            )
            found += [str(each["UploadId"]) for each in answer.get("Uploads", ()) if each["Key"] == name]
            if not answer.get("IsTruncated"):
                return found
            marker = {"KeyMarker": answer["NextKeyMarker"], "UploadIdMarker": answer["NextUploadIdMarker"]}

    def put(self, name: str, data: bytes, metadata: Mapping[str, str]) -> None:
        """Stores an object in one request; the store checks its MD5.

        :param metadata: the object's metadata, as for :meth:`create_upload`
        """
        self._call(
            name,
            lambda: self._client.put_object(
                Bucket=self._bucket,
                Key=name,
                Body=data,
                ContentType=_TYPE,
                ContentMD5=b64encode(_md5(data)).decode(),
                Metadata={**metadata, VERSION_NAME: VERSION},
            ),
        )

    def head(self, name: str) -> Stored:
        """Returns the size and the entity tag of an object.

        :raises OffloadedLedgerMissing: the object does not exist
        :raises OffloadedLedgerDamaged: another program stored the object
        """
        answer = self._call(name, lambda: self._client.head_object(Bucket=self._bucket, Key=name))
        _check_version(name, answer["Metadata"])
        return Stored(int(answer["ContentLength"]), str(answer["ETag"]).strip('"'))

    def get(self, name: str) -> bytes:
        """Returns the content of an object.

        :raises OffloadedLedgerMissing: the object does not exist
        :raises OffloadedLedgerDamaged: another program stored the object
        """
        return self._get(name, {})

    def get_range(self, name: str, start: int, end: int) -> bytes:
        """Returns the bytes from ``start`` up to but not including ``end``.

        :raises OffloadedLedgerMissing: the object does not exist
        :raises OffloadedLedgerDamaged: another program stored the object, or the object is too short
        """
        data = self._get(name, {"Range": f"bytes={start}-{end - 1}"}, start)
        if len(data) != end - start:
            raise OffloadedLedgerDamaged(
                name, start, f"{end - start} bytes before the end", f"{len(data)} bytes"
            )
        return data

    def _get(self, name: str, part: dict[str, str], start: int = 0) -> bytes:
        def read() -> bytes:
            answer = self._client.get_object(Bucket=self._bucket, Key=name, **part)
            _check_version(name, answer["Metadata"])
            return bytes(answer["Body"].read())

        return self._call(name, read, start)

    def listed(self, after: str) -> tuple[Sequence[FoundObject], str]:
        """Lists objects; see :meth:`magnetar.offload.interface.OffloadDriver.listed`."""
        answer = self._call(
            after,
            lambda: self._client.list_objects_v2(Bucket=self._bucket, MaxKeys=_LISTED, StartAfter=after),
        )
        found = [self._found(each["Key"], each) for each in answer.get("Contents", ())]
        more = str(answer["Contents"][-1]["Key"]) if answer.get("IsTruncated") else ""
        return [each for each in found if each is not None], more

    def _found(self, name: str, listed: Mapping[str, Any]) -> FoundObject | None:
        parsed = parsed_object_name(name)
        if parsed is None:
            return None
        try:
            # Lists have no metadata.
            told = self._call(name, lambda: self._client.head_object(Bucket=self._bucket, Key=name))
        except OffloadedLedgerMissing:
            return None
        metadata = {key.lower(): str(value) for key, value in told["Metadata"].items()}
        uri = f"{self._client.meta.endpoint_url}/{self._bucket}/{name}"
        uuid, ledger_id = parsed
        modified_ms = int(listed["LastModified"].timestamp() * 1000)
        return FoundObject(name, uri, ledger_id, uuid, int(listed["Size"]), modified_ms, metadata)

    def delete(self, name: str) -> None:
        """Deletes an object; does nothing if it does not exist."""
        self._call(name, lambda: self._client.delete_object(Bucket=self._bucket, Key=name))

    def _call(self, name: str, request: Callable[[], T], start: int = 0) -> T:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            return request()
        except ClientError as error:
            raise _translated(f"{self._bucket}/{name}", error, start) from error
        except BotoCoreError as error:
            raise _failed(f"{self._bucket}/{name}", error) from error


def tag_of_parts(digests: Sequence[bytes]) -> str:
    """Returns the entity tag that S3 computes for an object of several parts, unless S3 encrypts the object
    with keys of its key management service.

    :param digests: the MD5 digests of the parts, in the order of the parts
    """
    return f"{_md5(b''.join(digests)).hex()}-{len(digests)}"


def digest(data: bytes) -> bytes:
    """Returns the MD5 of a part."""
    return _md5(data)


def _md5(data: bytes) -> bytes:
    return md5(data, usedforsecurity=False).digest()


def _client(settings: S3Settings) -> BaseClient:
    try:
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError
        from botocore.loaders import create_loader
        from botocore.session import Session
    except ImportError as error:
        raise OffloadMisconfigured(
            "driver aws-s3 needs the package botocore: install magnetar[offload]"
        ) from error
    config = Config(
        connect_timeout=_CONNECT_SECONDS,
        read_timeout=_ANSWER_SECONDS,
        retries={"mode": "standard", "total_max_attempts": _ATTEMPTS},
        # Stores other than Amazon's may not know newer checksums; each part carries its MD5.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        s3={"addressing_style": "path" if settings.endpoint else "auto"},
    )
    global _loader
    if _loader is None:
        _loader = create_loader()
    session = Session()
    # The description of S3 is read once: that takes a third of a second.
    session.register_component("data_loader", _loader)
    if settings.role:
        session.register_component("credential_provider", _Role(settings, config, _loader))
        settings = replace(settings, key_id="", secret="")
    try:
        return session.create_client(
            "s3",
            region_name=settings.region or "us-east-1",
            endpoint_url=settings.endpoint or None,
            aws_access_key_id=settings.key_id or None,
            aws_secret_access_key=settings.secret or None,
            config=config,
        )
    except ValueError as error:
        raise OffloadMisconfigured(f"s3ManagedLedgerOffloadServiceEndpoint: {error}") from error
    except BotoCoreError as error:
        raise _failed(f"{settings.bucket}, with role {settings.role!r}", error) from error


class _Role:
    """The credentials of a role, from Amazon's STS or from the service in ``AWS_ENDPOINT_URL_STS``; they are
    renewed before they expire."""

    def __init__(self, settings: S3Settings, config: Config, loader: Loader) -> None:
        self._settings = settings
        self._config = config
        self._loader = loader

    def load_credentials(self) -> DeferredRefreshableCredentials:
        """Returns the credentials for botocore's client; the first request assumes the role.

        :raises NoCredentialsError: no credentials are available with which the role could be assumed
        """
        from botocore.credentials import AssumeRoleCredentialFetcher, DeferredRefreshableCredentials
        from botocore.exceptions import NoCredentialsError
        from botocore.session import Session

        session = Session()
        session.register_component("data_loader", self._loader)
        if self._settings.key_id:
            session.set_credentials(self._settings.key_id, self._settings.secret)
        own = session.get_credentials()
        if own is None:
            raise NoCredentialsError
        region = self._settings.region or "us-east-1"
        fetcher = AssumeRoleCredentialFetcher(
            partial(session.create_client, region_name=region, config=self._config),
            own,
            self._settings.role,
            {"RoleSessionName": self._settings.role_session},
        )
        return DeferredRefreshableCredentials(fetcher.fetch_credentials, "assume-role")


def _check_version(name: str, metadata: dict[str, str]) -> None:
    found = {key.lower(): value for key, value in metadata.items()}.get(VERSION_NAME)
    if found != VERSION:
        raise OffloadedLedgerDamaged(name, 0, f"metadata {VERSION_NAME}={VERSION}", repr(found))


def _translated(what: str, error: Exception, start: int) -> OffloadError:
    """Returns the offload error for an error answer of the store.

    :param what: the bucket and the name of the object, for messages
    :param start: the offset of the requested bytes in the object
    """
    answer: dict[str, dict[str, str]] = getattr(error, "response", {})
    told = answer.get("Error", {})
    code = str(told.get("Code", ""))
    status = int(answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    text = f"{what}: the store answers {status} {code}: {told.get('Message', '')}"
    if code == "NoSuchBucket":
        return OffloadMisconfigured(f"{text}; create the bucket, or correct s3ManagedLedgerOffloadBucket")
    if code in _GONE:
        return OffloadedLedgerMissing(text)
    if status == 416 or code == "InvalidRange":
        return OffloadedLedgerDamaged(what, start, "more bytes", "the end of the object")
    if status >= 500 or status == 429 or code in _LATER:
        return OffloadUnavailable(text)
    if status in (401, 403):
        return OffloadRefused(f"{text}; check the credentials and what they permit")
    return OffloadRefused(text)


def _failed(what: str, error: Exception) -> OffloadError:
    """Returns the offload error for a request that was not sent or got no answer.

    :param what: what the request was about, for messages
    """
    from botocore import exceptions

    without = (
        exceptions.NoCredentialsError,
        exceptions.PartialCredentialsError,
        exceptions.CredentialRetrievalError,
        exceptions.ProfileNotFound,
    )
    if isinstance(error, without):
        return OffloadRefused(
            f"{what}: {error}; set s3ManagedLedgerOffloadCredentialId and "
            "s3ManagedLedgerOffloadCredentialSecret, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or "
            "a profile"
        )
    return OffloadUnavailable(f"{what}: {error}")
