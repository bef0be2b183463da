"""A bucket of an S3 server in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.request import Request, urlopen

from botocore.session import get_session
from moto.server import ThreadedMotoServer

BUCKET, KEY, SECRET = "tier", "key", "a-very-secret-key"
REGION = "us-east-1"


class Bucket:
    def __init__(self, url: str) -> None:
        self.url = url
        self._s3 = get_session().create_client(
            "s3",
            endpoint_url=url,
            region_name=REGION,
            aws_access_key_id=KEY,
            aws_secret_access_key=SECRET,
        )
        self._s3.create_bucket(Bucket=BUCKET)

    @property
    def names(self) -> set[str]:
        found = self._s3.list_objects_v2(Bucket=BUCKET).get("Contents", [])
        return {each["Key"] for each in found}

    def put(self, name: str, content: bytes, metadata: dict[str, str]) -> None:
        self._s3.put_object(Bucket=BUCKET, Key=name, Body=content, Metadata=metadata)

    def get(self, name: str) -> bytes:
        body: bytes = self._s3.get_object(Bucket=BUCKET, Key=name)["Body"].read()
        return body

    def begin_upload(self, name: str) -> None:
        """Begins an upload of parts, and does not complete it."""
        self._s3.create_multipart_upload(Bucket=BUCKET, Key=name)

    @property
    def uploads(self) -> set[str]:
        """The names of uploads that are not complete."""
        found = self._s3.list_multipart_uploads(Bucket=BUCKET).get("Uploads", [])
        return {each["Key"] for each in found}

    @property
    def settings(self) -> dict[str, int | str]:
        return {
            "managedLedgerOffloadDriver": "aws-s3",
            "s3ManagedLedgerOffloadBucket": BUCKET,
            "s3ManagedLedgerOffloadRegion": REGION,
            "s3ManagedLedgerOffloadServiceEndpoint": self.url,
            "s3ManagedLedgerOffloadCredentialId": KEY,
            "s3ManagedLedgerOffloadCredentialSecret": SECRET,
        }


@contextmanager
def new_bucket() -> Iterator[Bucket]:
    """Runs an S3 server with an empty bucket."""
    moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    moto.start()
    host, port = moto.get_host_and_port()
    # Servers in one process share their buckets.
    with urlopen(Request(f"http://{host}:{port}/moto-api/reset", method="POST")):
        pass
    try:
        yield Bucket(f"http://{host}:{port}")
    finally:
        moto.stop()
