"""Method ``basic``: a name and a password, compared with a file of Apache's ``htpasswd``.

Pulsar's ``AuthenticationProviderBasic`` accepts apr1 and the formats of ``crypt(3)``; this provider also
accepts bcrypt and SHA-1 (``-s`` of htpasswd). A comparison deliberately takes up to a second of CPU time, so
comparisons run on a worker, and only a few for the same client address can wait at a time.
"""

from __future__ import annotations

import hmac
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any

from passlib.exc import PasslibSecurityError, PasswordSizeError
from passlib.hash import apr_md5_crypt, bcrypt, des_crypt, ldap_sha1, md5_crypt, sha256_crypt, sha512_crypt

from magnetar.errors import TooManyRequests
from magnetar.io.interfaces import Future, Io, Worker
from magnetar.io.tasks import TaskScope, owner_goes_on
from magnetar.io.waiting import run_job
from magnetar.security.authentication import Authenticated, Credentials, PeerCertificate, refused
from magnetar.security.key_material import UnusableKey, WatchedFiles, key_source
from magnetar.security.options import SecurityOptions

log = logging.getLogger(__name__)
_WATCH_SECONDS = 1.0
_REMEMBERED_SECONDS = 60.0
_REMEMBERED = 10_000
_WAITING_PER_ADDRESS = 4
_WAITING = 256
_MAX_PASSWORD_BYTES = 4096
_MAX_COST = 15
"""The maximum cost of bcrypt; the number of rounds is 2 to the power of the cost."""
_MAX_ROUNDS = 1_000_000
_BCRYPT_BYTES = 72
_FORMS = (apr_md5_crypt, md5_crypt, sha256_crypt, sha512_crypt, bcrypt, ldap_sha1, des_crypt)
_WRONG = "Unknown name or wrong password"


def parse_htpasswd(text: bytes) -> dict[str, str]:
    """Returns the password hashes by name; ignores comments and empty lines.

    :raises UnusableKey: a line is malformed, a name occurs twice, or a format is unknown or too slow
    """
    users: dict[str, str] = {}
    try:
        lines = text.decode("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise UnusableKey("the file is not UTF-8") from error
    for number, line in enumerate(lines, 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        name, colon, stored = line.partition(":")
        if not colon or not name:
            raise UnusableKey(f"line {number} must be name:password")
        if name in users:
            raise UnusableKey(f"line {number} repeats the name {name!r}")
        _check_form(number, stored)
        users[name] = stored
    return users


def _check_form(number: int, stored: str) -> None:
    form = _form_of(stored)
    if form is None:
        raise UnusableKey(f"line {number}: the format of the password hash is not supported")
    try:
        if form is des_crypt or form is ldap_sha1:
            # These hashes are cheap to check.
            form.verify(b"", stored)
            return
        parsed = form.from_string(stored)
    except ValueError as error:
        raise UnusableKey(f"line {number}: the password hash is malformed") from error
    if not parsed.checksum:
        raise UnusableKey(f"line {number}: the password hash is malformed")
    most = _MAX_COST if form is bcrypt else _MAX_ROUNDS
    if getattr(parsed, "rounds", 0) > most:
        raise UnusableKey(
            f"line {number}: the password hash has too many rounds; comparing it would take too long"
        )


def _form_of(stored: str) -> Any:
    """Returns passlib's handler for the format of ``stored``; None if the format is unknown."""
    return next((form for form in _FORMS if form.identify(stored)), None)


def matches(password: bytes, stored: str) -> bool:
    """Whether a password matches the hash ``stored``; slow."""
    form = _form_of(stored)
    if form is None:
        return False
    if form is bcrypt:
        # htpasswd hashes only this many bytes.
        password = password[:_BCRYPT_BYTES]
    try:
        return bool(form.verify(password, stored))
    except (ValueError, TypeError, PasswordSizeError, PasslibSecurityError):
        # The password contains a zero byte, or is too long for the format.
        return False


class PasswordProvider:
    """Implements :class:`magnetar.security.authentication.Provider` for passwords."""

    method = "basic"

    def __init__(self, io: Io, worker: Worker, options: SecurityOptions) -> None:
        """Reads the password file.

        :raises ProviderRefused: the file cannot be used
        """
        self._io = io
        self._tasks = TaskScope(io.loop, "passwords", owner_goes_on)
        self._worker = worker
        # A separate worker, so that watching the file does not wait for comparisons.
        self._comparing = io.start_worker("passwords")
        try:
            self._source = key_source(options.text("basicAuthConf"))
            self._users = parse_htpasswd(self._source.read())
        except UnusableKey as error:
            self._comparing.close()
            options.refuse("basicAuthConf", f"cannot be used: {error}")
        self._secret = io.randomness.token(32)
        self._proven: OrderedDict[bytes, float] = OrderedDict()
        """By keyed hash of accepted credentials: the time until which they are accepted without a comparison,
        in seconds of the monotonic clock; the oldest first.
        """
        self._waiting: dict[str, int] = {}
        """The number of comparisons in progress, by the client's address."""
        self._begun: dict[bytes, list[Future[bool]]] = {}
        """By keyed hash of credentials: the futures that wait for a comparison with the current file."""
        self._listeners: list[Callable[[], None]] = []
        files = [self._source.path] if self._source.path is not None else []
        self._watched = WatchedFiles(io, worker, files, _WATCH_SECONDS, self._changed)

    def _changed(self) -> None:
        self._tasks.start(self._reload(), "reading the changed file")

    async def _reload(self) -> None:
        """Reads the changed file. If it cannot be used, all passwords are refused."""
        try:
            self._users = parse_htpasswd(await run_job(self._io.loop, self._worker, self._source.read))
        except UnusableKey as error:
            log.error(
                "refusing all passwords: the password file cannot be used", extra={"reason": str(error)}
            )
            self._users = {}
        self._proven.clear()
        self._begun.clear()
        for changed in self._listeners:
            changed()

    async def authenticate(self, credentials: Credentials) -> Authenticated:
        name, colon, password = credentials.data.partition(b":")
        if not colon or not name or len(password) > _MAX_PASSWORD_BYTES:
            raise refused("The credentials are not name:password")
        try:
            role = name.decode("utf-8")
        except UnicodeDecodeError as error:
            raise refused("The name is not UTF-8") from error
        known = hmac.new(self._secret, credentials.data, sha256).digest()
        if self._is_remembered(known):
            return Authenticated(role)
        users = self._users
        if credentials.again and role not in users:
            raise refused(_WRONG)
        waiting = self._begun.get(known)
        if waiting is None:
            if not credentials.again:
                self._check_room(credentials.host)
            waiting = self._compare(credentials.host, password, users, role, known)
        answer = self._io.loop.create_future()
        waiting.append(answer)
        if not await answer:
            raise refused(_WRONG)
        if users is not self._users:
            raise refused("The passwords have just changed; try again")
        self._remember(known)
        return Authenticated(role)

    def _check_room(self, host: str) -> None:
        """Checks that another comparison may begin.

        :raises TooManyRequests: too many comparisons are in progress for the client address ``host``, or in
            total
        """
        of_address = self._waiting.get(host, 0)
        if of_address >= _WAITING_PER_ADDRESS or sum(self._waiting.values()) >= _WAITING:
            raise TooManyRequests("Too many passwords are being compared; try again later")

    def _compare(
        self, host: str, password: bytes, users: Mapping[str, str], role: str, known: bytes
    ) -> list[Future[bool]]:
        """Begins a comparison of a password; returns the list of futures that get the result of the
        comparison. The caller adds a future of its own to the list.

        :param users: the password hashes by name
        :param role: the name that the client sent
        :param known: the keyed hash of the credentials
        """
        self._waiting[host] = self._waiting.get(host, 0) + 1
        stored = users.get(role)
        with_what = stored if stored is not None else self._instead(users, role)
        asking = self._begun[known] = []

        def compared(found: bool | None, error: BaseException | None) -> None:
            # Counted until it is done, also if the client has disconnected.
            self._let_go(host)
            if self._begun.get(known) is asking:
                del self._begun[known]
            for answer in asking:
                if answer.cancelled():
                    continue
                if error is not None:
                    answer.set_exception(error)
                else:
                    answer.set_result(bool(found) and stored is not None)

        self._comparing.submit(lambda: matches(password, with_what), compared)
        return asking

    def _instead(self, users: Mapping[str, str], role: str) -> str:
        """Returns a hash for an unknown name, so that the refusal takes as long as for a wrong password.

        A name always gets the same hash, like a known name.
        """
        if not users:
            return ""
        number = int.from_bytes(hmac.digest(self._secret, role.encode(), sha256)[:8])
        return list(users.values())[number % len(users)]

    def _let_go(self, host: str) -> None:
        self._waiting[host] -= 1
        if not self._waiting[host]:
            del self._waiting[host]

    def _is_remembered(self, known: bytes) -> bool:
        until = self._proven.get(known)
        return until is not None and until > self._io.clock.monotonic()

    def _remember(self, known: bytes) -> None:
        self._proven.pop(known, None)
        self._proven[known] = self._io.clock.monotonic() + _REMEMBERED_SECONDS
        while len(self._proven) > _REMEMBERED:
            self._proven.popitem(last=False)

    def listen(self, changed: Callable[[], None]) -> None:
        self._listeners.append(changed)

    async def close(self) -> None:
        self._watched.close()
        self._comparing.close()


class CertificateProvider:
    """Implements :class:`magnetar.security.authentication.Provider` for TLS certificates; Pulsar's
    ``AuthenticationProviderTls``."""

    method = "tls"

    async def authenticate(self, credentials: Credentials) -> Authenticated:
        if credentials.certificate is None:
            raise refused("No client certificate")
        name = common_name(credentials.certificate)
        if not name:
            raise refused("The client's certificate has no common name")
        return Authenticated(name)

    def listen(self, changed: Callable[[], None]) -> None:
        """Does nothing, because a certificate is valid as long as its connection lasts."""

    async def close(self) -> None:
        """Does nothing."""


def common_name(certificate: PeerCertificate) -> str:
    """Returns the CN of the certificate's subject, the most specific CN if there are several; empty: the
    subject has no CN.
    """
    subject = certificate.get("subject")
    found = ""
    for part in subject if isinstance(subject, tuple) else ():
        for name, value in part:
            if name == "commonName":
                found = value
    return found
