"""HTTP requests to brokers of a cluster, of either kind, which send on to each other."""

from __future__ import annotations

import json
from http.client import HTTPConnection
from urllib.parse import urlsplit

from apache_broker import ApacheBroker
from cluster_broker import BrokerProcess

Broker = BrokerProcess | ApacheBroker
_PATIENCE = 90.0


def http_of(broker: Broker) -> str:
    if isinstance(broker, ApacheBroker):
        return f"http://127.0.0.1:{broker.http_port}"
    return broker.http_url


def asked(method: str, url: str, body: object = None, seconds: float = _PATIENCE) -> tuple[int, bytes, int]:
    """Goes where it is sent: status, body, and how often it was sent on.

    :param seconds: how long one broker may take
    """
    redirects = 0
    while True:
        parts = urlsplit(url)
        connection = HTTPConnection(parts.netloc, timeout=seconds)
        try:
            text = None if body is None else json.dumps(body)
            headers = {"Content-Type": "application/json"} if text is not None else {}
            connection.request(method, f"{parts.path}?{parts.query}", text, headers)
            response = connection.getresponse()
            answer = response.read()
        finally:
            connection.close()
        if response.status != 307:
            return response.status, answer, redirects
        redirects += 1
        assert redirects <= 5, url
        url = response.headers["Location"]
