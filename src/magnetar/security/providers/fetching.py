"""Fetches small documents by HTTPS or HTTP, with limits of time and size; blocks, so it runs on workers."""

from __future__ import annotations

import http.client
import time
from urllib.parse import urlsplit

from magnetar.io.tls import TlsFiles, TlsRules, client_context

MAX_BYTES = 1 << 20
_READ_BYTES = 16 << 10


class FetchFailed(Exception):
    """A document could not be fetched; the message gives the reason."""


class Fetcher:
    """Fetches documents without redirects and proxies, so that a document comes from its address."""

    def __init__(self, trust: str, connect_seconds: float, read_seconds: float) -> None:
        """:param trust: a PEM file with trusted CA certificates; empty: the system's CA certificates
        :param connect_seconds: the time limit for the connection and the TLS handshake, in seconds
        :param read_seconds: the time limit for the whole answer, in seconds
        :raises TlsRefused: the file ``trust`` cannot be used
        """
        self._context = client_context(TlsFiles(trust=trust), TlsRules())
        self._connect_seconds = connect_seconds
        self._read_seconds = read_seconds

    def get(self, url: str) -> bytes:
        """Returns the body of the answer to a GET request.

        :raises FetchFailed: the status is not 200, the answer is too large or too slow, or there is no answer
        """
        try:
            return self._get(url)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise FetchFailed(f"{url}: {error}") from error

    def _get(self, url: str) -> bytes:
        parts = urlsplit(url)
        if not parts.hostname:
            raise FetchFailed(f"{url}: the URL has no host")
        seconds = self._connect_seconds
        connection = (
            http.client.HTTPSConnection(parts.hostname, parts.port, timeout=seconds, context=self._context)
            if parts.scheme == "https"
            else http.client.HTTPConnection(parts.hostname, parts.port, timeout=seconds)
        )
        try:
            connection.connect()
            until = time.monotonic() + self._read_seconds
            connection.sock.settimeout(self._read_seconds)
            path = parts.path or "/"
            connection.request("GET", f"{path}?{parts.query}" if parts.query else path)
            response = connection.getresponse()
            if response.status != http.client.OK:
                raise FetchFailed(f"{url}: the status must be 200, not {response.status}")
            return _read(response, connection, until, url)
        finally:
            connection.close()


def _read(
    response: http.client.HTTPResponse, connection: http.client.HTTPConnection, until: float, url: str
) -> bytes:
    data = bytearray()
    while True:
        left = until - time.monotonic()
        if left <= 0:
            raise FetchFailed(f"{url}: the answer took too long")
        if connection.sock is not None:
            connection.sock.settimeout(left)
        piece = response.read1(_READ_BYTES)
        if not piece:
            return bytes(data)
        data += piece
        if len(data) > MAX_BYTES:
            raise FetchFailed(f"{url}: the response exceeds {MAX_BYTES} bytes")
