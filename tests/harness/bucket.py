"""An S3 server in this process, and a bucket of it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.request import Request, urlopen

from botocore.session import get_session
from moto.moto_server.werkzeug_app import (
    DomainDispatcherApplication,
    MotoRequestHandler,
    create_backend_app,
)
from werkzeug.serving import make_server

BUCKET, KEY, SECRET = "tier", "key", "a-very-secret-key"
REGION = "us-east-1"


class _Application(DomainDispatcherApplication):
    """Accepts every signature of version 2, which Apache's offloader sends.

    moto takes a request for one of version 4 if its authorization contains four slashes, as one signature of
    version 2 in about a thousand does, and then finds a service in it that does not exist.
    """

    def infer_service_region_host(self, environ: dict[str, Any], path: str) -> str | None:
        if environ.get("HTTP_AUTHORIZATION", "").startswith("AWS "):
            return None
        found: str | None = super().infer_service_region_host(environ, path)
        return found


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
def s3_server() -> Iterator[str]:
    """Runs an S3 server without buckets, in threads of this process; yields its URL."""
    app = _Application(create_backend_app)
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=MotoRequestHandler)
    serving = threading.Thread(target=server.serve_forever, daemon=True)
    serving.start()
    url = f"http://127.0.0.1:{server.server_port}"
    try:
        # Servers in one process share their buckets.
        with urlopen(Request(f"{url}/moto-api/reset", method="POST")):
            pass
        yield url
    finally:
        server.shutdown()
        serving.join()
        server.server_close()


@contextmanager
def new_bucket() -> Iterator[Bucket]:
    """Runs an S3 server with an empty bucket."""
    with s3_server() as url:
        yield Bucket(url)
