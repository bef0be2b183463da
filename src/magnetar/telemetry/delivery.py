"""Sends requests to an OpenTelemetry collector over HTTP, on one persistent connection; calls block."""

from __future__ import annotations

import gzip
import socket
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from urllib.parse import urlsplit

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse

from magnetar.io.tls import ClientContext, TlsRefused
from magnetar.telemetry.settings import TelemetrySettings

_MOST_ANSWER = 64 << 10
_PROTOBUF = "application/x-protobuf"


class NotDelivered(Exception):
    """The collector did not accept a request; the message gives the reason, without secrets."""


class Delivery:
    """A connection to the collector, for one thread; only :meth:`stop` can be called from another thread."""

    def __init__(self, settings: TelemetrySettings) -> None:
        self._settings = settings
        parts = urlsplit(settings.url)
        self._secured = parts.scheme == "https"
        self._host = parts.hostname or ""
        self._port = parts.port
        self._path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._context = ClientContext(settings.tls)
        self._connection: HTTPConnection | None = None
        self._stopped = False

    def send(self, request: bytes) -> str:
        """Sends a request; returns the collector's message about rejected points (empty: all points were
        accepted).

        :raises NotDelivered: the collector does not answer, or refuses the request
        """
        body = gzip.compress(request, 1) if self._settings.gzip else request
        try:
            response = self._exchanged(body)
            data = response.read(_MOST_ANSWER + 1)
        except (OSError, HTTPException, TlsRefused) as error:
            self.close()
            raise NotDelivered(f"{self._settings.url}: {error}") from error
        if len(data) > _MOST_ANSWER or response.will_close:
            self.close()
        if response.status != HTTPStatus.OK:
            raise NotDelivered(f"{self._settings.url}: status {response.status}")
        return _rejected(data)

    def stop(self) -> None:
        """Ends a request in progress soon, and refuses further requests."""
        self._stopped = True
        connection = self._connection
        if connection is not None and connection.sock is not None:
            try:
                connection.sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                # The connection has ended already.
                return

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _exchanged(self, body: bytes) -> HTTPResponse:
        reused = self._connection is not None
        try:
            return self._asked(body)
        except (OSError, HTTPException):
            if not reused:
                raise
            # A collector may close an idle connection.
            self.close()
            return self._asked(body)

    def _asked(self, body: bytes) -> HTTPResponse:
        if self._stopped:
            raise ConnectionAbortedError("stopped")
        if self._connection is None:
            self._connection = self._connected()
        headers = {**self._settings.headers, "Content-Type": _PROTOBUF}
        if self._settings.gzip:
            headers["Content-Encoding"] = "gzip"
        self._connection.request("POST", self._path, body, headers)
        return self._connection.getresponse()

    def _connected(self) -> HTTPConnection:
        seconds = self._settings.timeout_seconds
        if self._secured:
            return HTTPSConnection(self._host, self._port, timeout=seconds, context=self._context())
        return HTTPConnection(self._host, self._port, timeout=seconds)


def _rejected(data: bytes) -> str:
    answer = ExportMetricsServiceResponse()
    try:
        answer.ParseFromString(data)
    except DecodeError as error:
        raise NotDelivered(f"the answer is not an OTLP response: {error}") from error
    partial = answer.partial_success
    if not partial.rejected_data_points:
        return ""
    return f"{partial.rejected_data_points} data points were rejected: {partial.error_message}"
