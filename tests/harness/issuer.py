"""An issuer of OpenID Connect with a token endpoint for client credentials, on a port of its own."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

AUDIENCE = "magnetar-tests"
SECRET = "a client's secret"


class OpenIdIssuer:
    """Whoever knows ``SECRET`` gets a token for the role that its client id names, good for ``seconds``."""

    def __init__(self, key: RSAPrivateKey, seconds: int = 600) -> None:
        self.seconds = seconds
        self.asked = 0
        self._key = key
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def parameters(self, role: str) -> dict[str, str]:
        """What official clients take; some in one name, some in the other."""
        return {
            "issuer_url": self.url,
            "client_id": role,
            "client_secret": SECRET,
            "audience": AUDIENCE,
        }

    def key_file(self, role: str) -> str:
        """The content of a file of credentials, for clients that want one."""
        fields = {"client_id": role, "client_secret": SECRET, "issuer_url": self.url}
        return json.dumps({"type": "client_credentials", **fields})

    def _documents(self) -> dict[str, dict[str, Any]]:
        shown = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(self._key.public_key()))
        return {
            "/.well-known/openid-configuration": {
                "issuer": self.url,
                "jwks_uri": f"{self.url}/keys",
                "token_endpoint": f"{self.url}/token",
            },
            "/keys": {"keys": [{**shown, "kid": "k", "alg": "RS256"}]},
        }

    def _token(self, form: dict[str, list[str]]) -> tuple[int, dict[str, Any]]:
        if form.get("client_secret") != [SECRET] or form.get("grant_type") != ["client_credentials"]:
            return 401, {"error": "invalid_client", "error_description": "nobody knows you"}
        self.asked += 1
        claims = {
            "iss": self.url,
            "sub": form["client_id"][0],
            "aud": form.get("audience", [""])[0],
            "exp": int(time.time()) + self.seconds,
        }
        made = jwt.encode(claims, self._key, "RS256", {"kid": "k"})
        return 200, {"access_token": made, "token_type": "Bearer", "expires_in": self.seconds}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                found = issuer._documents().get(self.path)
                self._answer(200 if found else 404, found or {})

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                self._answer(*issuer._token(parse_qs(body.decode())))

            def _answer(self, status: int, document: dict[str, Any]) -> None:
                body = json.dumps(document).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """Says nothing."""

        return Handler
