"""The client's side of DIGEST-MD5 (RFC 2831), which proves knowledge of a name and a password without sending
the password.

Apache BookKeeper and ZooKeeper use it for passwords. MD5 does not protect a password from an attacker who can
try many passwords against recorded traffic: on untrusted networks use it over TLS.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping
from hashlib import md5
from typing import NamedTuple

MAX_CHALLENGE_BYTES = 2048
"""The maximum size of a challenge according to the RFC; a longer one is refused."""
_COUNT = "00000001"
"""The number of uses of the challenge, always 1 because each connection has its own challenge."""
_DIRECTIVE = re.compile(r'\s*([-a-z0-9]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^",\s]*))\s*(?:,|$)', re.IGNORECASE)
_NEEDS_QUOTING = re.compile(r'(["\\])')


class DigestRefused(Exception):
    """The server's message is not valid for this mechanism, or the server does not know the password."""


class NameAndPassword(NamedTuple):
    username: str
    password: str

    def __repr__(self) -> str:
        return f"NameAndPassword({self.username!r})"


class DigestClient:
    """One authentication, for one connection.

    :param service: the kind of server and its name, in the mechanism's form: ``kind/name``
    :param nonce: a random string of letters and digits, for this authentication only
    """

    def __init__(self, credentials: NameAndPassword, service: str, nonce: str) -> None:
        self._credentials = credentials
        self._service = service
        self._own_nonce = nonce
        self._expected = ""

    def respond(self, challenge: bytes) -> bytes:
        """Returns the digest that shows that the client knows the password.

        :raises DigestRefused: the challenge is invalid, or requires an option that is not supported
        """
        asked = _directives(challenge)
        nonce = asked.get("nonce", "")
        if not nonce or asked.get("algorithm") != "md5-sess":
            raise DigestRefused("the challenge of the server is not a valid DIGEST-MD5 challenge")
        if "auth" not in asked.get("qop", "auth").split(","):
            raise DigestRefused(f"the server requires qop={asked['qop']}, but only qop=auth is supported")
        credentials, realm = self._credentials, asked.get("realm", "")
        secret = md5(
            b":".join(map(_hashed_form, (credentials.username, realm, credentials.password))),
            usedforsecurity=False,
        ).digest()
        session = _hex(secret + f":{nonce}:{self._own_nonce}".encode())
        between = f"{nonce}:{_COUNT}:{self._own_nonce}:auth"

        def response(of: str) -> str:
            return _hex(f"{session}:{between}:{_hex(f'{of}:{self._service}'.encode())}".encode())

        self._expected = response("")
        utf8 = "charset=utf-8," if asked.get("charset") else ""
        return (
            f"{utf8}username={_quoted(credentials.username)},realm={_quoted(realm)},nonce={_quoted(nonce)},"
            f'nc={_COUNT},cnonce="{self._own_nonce}",digest-uri={_quoted(self._service)},'
            f"response={response('AUTHENTICATE')},qop=auth"
        ).encode()

    def verify(self, answer: bytes) -> None:
        """Checks the server's answer to :meth:`respond`, which proves that the server knows the password,
        too.

        :raises DigestRefused: the answer does not prove that the server knows the password
        """
        told = _directives(answer).get("rspauth", "")
        if not self._expected or not hmac.compare_digest(told.encode(), self._expected.encode()):
            raise DigestRefused("the server did not prove that it knows the password")


def _directives(data: bytes) -> Mapping[str, str]:
    if len(data) > MAX_CHALLENGE_BYTES:
        raise DigestRefused(f"the server sent {len(data)} bytes; at most {MAX_CHALLENGE_BYTES} are accepted")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise DigestRefused("the message of the server is not UTF-8 text") from error
    found: dict[str, str] = {}
    at = 0
    while at < len(text):
        match = _DIRECTIVE.match(text, at)
        if match is None or match.end() == at:
            raise DigestRefused("the message of the server is not a valid DIGEST-MD5 challenge")
        name, quoted, plain = match.groups()
        # A server may offer several realms: the first one is used.
        found.setdefault(name.lower(), plain if quoted is None else re.sub(r"\\(.)", r"\1", quoted))
        at = match.end()
    return found


def _quoted(text: str) -> str:
    return '"' + _NEEDS_QUOTING.sub(r"\\\1", text) + '"'


def _hashed_form(text: str) -> bytes:
    """Encodes a string as the RFC requires: in ISO 8859-1 if this encoding has all its characters,
    otherwise in UTF-8."""
    try:
        return text.encode("iso-8859-1")
    except UnicodeEncodeError:
        return text.encode()


def _hex(data: bytes) -> str:
    return md5(data, usedforsecurity=False).hexdigest()
