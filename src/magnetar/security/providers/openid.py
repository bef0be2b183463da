"""Method ``token`` with OpenID Connect: issuers publish the keys for checking their tokens.

Settings are those of Pulsar's ``AuthenticationProviderOpenID``. Facts about an issuer come only from its own
discovery document, and no claim of a token is trusted unless the token's issuer is allowed. Documents are
fetched on a worker, with limits of time and size; all clients that wait for a document share one fetch.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import field

import jwt
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from magnetar.io.interfaces import Future, Io, Worker
from magnetar.io.tasks import TaskScope, owner_goes_on
from magnetar.io.tls import TlsRefused
from magnetar.io.waiting import run_job
from magnetar.lazy_dataclass import dataclass
from magnetar.security.authentication import Authenticated, Credentials, refused
from magnetar.security.key_material import UnusableKey
from magnetar.security.options import SecurityOptions
from magnetar.security.providers.fetching import Fetcher, FetchFailed
from magnetar.security.providers.tokens import (
    MAX_TOKEN_BYTES,
    TokenKey,
    TokenRules,
    authenticated_by,
    claims_of,
    key_of,
)

log = logging.getLogger(__name__)

_DISCOVERY = "/.well-known/openid-configuration"
_MAX_KEYS = 100
_RETRY_SECONDS = 5.0
"""The seconds between two requests to an issuer that does not answer."""

Fetch = Callable[[str], bytes]


@dataclass(slots=True)
class _Issuer:
    """The state of one issuer."""

    url: str
    keys: Mapping[str, TokenKey] = field(default_factory=dict)
    """Keys by id."""
    fetched: float | None = None
    """The time of the last successful fetch of keys, in seconds of the monotonic clock; None: never."""
    asked: float | None = None
    """The time of the last attempt to fetch keys, successful or not, on the same clock; None: no attempt."""
    waiting: list[Future[None]] = field(default_factory=list)
    fetching: bool = False


class OpenIdProvider:
    """Implements :class:`magnetar.security.authentication.Provider` for tokens of OpenID Connect."""

    method = "token"

    def __init__(self, io: Io, worker: Worker, options: SecurityOptions, fetch: Fetch | None = None) -> None:
        """:param fetch: returns the document at a URL; None: fetches the document by HTTPS or, if HTTP is
            permitted, by HTTP
        :raises ProviderRefused: settings are missing or contradict each other
        """
        self._io = io
        self._tasks = TaskScope(io.loop, "the keys of issuers", owner_goes_on)
        self._worker = io.start_worker("openid")
        allowed = options.names("openIDAllowedTokenIssuers")
        if not allowed:
            options.refuse("openIDAllowedTokenIssuers", "must be set, or no tokens would be accepted")
        secure = options.truth("openIDRequireIssuersUseHttps", True)
        for url in allowed:
            if not url.startswith("https://") and (secure or not url.startswith("http://")):
                options.refuse("openIDAllowedTokenIssuers", f"must be an https address, not {url!r}")
        self._secure = secure
        self._audiences = frozenset(options.names("openIDAllowedAudiences"))
        if not self._audiences:
            options.refuse(
                "openIDAllowedAudiences", "must be set, or tokens for other services would be accepted"
            )
        leeway = options.whole("openIDAcceptedTimeLeewaySeconds", 0, high=86_400)
        self._rules = TokenRules(options.text("openIDRoleClaim", "sub"), leeway_seconds=leeway)
        self._refresh = options.whole("openIDCacheRefreshAfterWriteSeconds", 64_800, low=1)
        self._expiry = options.whole("openIDCacheExpirationSeconds", 86_400, low=1)
        self._unknown = options.whole("openIDKeyIdCacheMissRefreshSeconds", 300)
        self._issuers = {url: _Issuer(url) for url in allowed}
        self._fetch = fetch or self._fetcher(options)
        self._changed: list[Callable[[], None]] = []

    @staticmethod
    def _fetcher(options: SecurityOptions) -> Fetch:
        try:
            return Fetcher(
                options.text("openIDTokenIssuerTrustCertsFilePath"),
                options.whole("openIDHttpConnectionTimeoutMillis", 10_000, low=1) / 1000,
                options.whole("openIDHttpReadTimeoutMillis", 10_000, low=1) / 1000,
            ).get
        except TlsRefused as error:
            options.refuse("openIDTokenIssuerTrustCertsFilePath", f"cannot be used: {error}")

    async def authenticate(self, credentials: Credentials) -> Authenticated:
        token = credentials.data
        if len(token) > MAX_TOKEN_BYTES:
            raise refused("The token is too long")
        issuer, key_id = self._named_by(token)
        key = await self._key(issuer, key_id)
        claims = claims_of(token, key, self._rules.leeway_seconds)
        if claims.get("iss") != issuer.url:
            raise refused("The token has another issuer")
        audiences = claims.get("aud")
        meant = audiences if isinstance(audiences, list) else [audiences]
        if not any(isinstance(one, str) and one in self._audiences for one in meant):
            raise refused("The token is for another audience")
        if "exp" not in claims:
            raise refused("The token has no expiry")
        return authenticated_by(claims, self._rules)

    def _named_by(self, token: bytes) -> tuple[_Issuer, str]:
        """Returns the issuer and the key id that a token claims, before its signature is checked.

        :raises AuthenticationFailure: the issuer is not allowed
        """
        try:
            found = jwt.decode_complete(token, options={"verify_signature": False})
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError) as error:
            raise refused("The token cannot be read") from error
        name, key_id = found["payload"].get("iss"), found["header"].get("kid")
        issuer = self._issuers.get(name) if isinstance(name, str) else None
        if issuer is None:
            raise refused("The issuer of the token is not allowed")
        if not isinstance(key_id, str):
            raise refused("The token has no key id")
        return issuer, key_id

    async def _key(self, issuer: _Issuer, key_id: str) -> TokenKey:
        """Returns the key with which a token is checked.

        :raises AuthenticationFailure: the issuer has no such key, or does not answer
        """
        now = self._io.clock.monotonic()
        age = None if issuer.fetched is None else now - issuer.fetched
        if age is None or age > self._expiry:
            if self._may_ask(issuer, now, _RETRY_SECONDS):
                await self._fetched(issuer)
        elif key_id not in issuer.keys:
            if self._may_ask(issuer, now, self._unknown):
                await self._fetched(issuer)
        elif age > self._refresh and self._may_ask(issuer, now, _RETRY_SECONDS):
            self._begin(issuer)
        key = issuer.keys.get(key_id)
        if key is None or not self._counts(issuer):
            raise refused("The key of the token is unknown")
        return key

    def _counts(self, issuer: _Issuer) -> bool:
        """Whether the keys are recent enough to be used. Expired keys are kept, to detect withdrawn keys
        after a fetch."""
        return issuer.fetched is not None and self._io.clock.monotonic() - issuer.fetched <= self._expiry

    @staticmethod
    def _may_ask(issuer: _Issuer, now: float, seconds: float) -> bool:
        return issuer.fetching or issuer.asked is None or now - issuer.asked >= seconds

    async def _fetched(self, issuer: _Issuer) -> None:
        """Fetches keys, or waits until an attempt in progress has ended, successful or not."""
        done = self._io.loop.create_future()
        issuer.waiting.append(done)
        self._begin(issuer)
        await done

    def _begin(self, issuer: _Issuer) -> None:
        if not issuer.fetching:
            issuer.fetching = True
            issuer.asked = self._io.clock.monotonic()
            self._tasks.start(self._ask(issuer), "loading keys")

    async def _ask(self, issuer: _Issuer) -> None:
        try:
            keys = await run_job(self._io.loop, self._worker, lambda: self._read(issuer.url))
        except FetchFailed as error:
            log.warning(
                "cannot load the keys of an issuer", extra={"issuer": issuer.url, "reason": str(error)}
            )
        except Exception:
            log.exception("cannot load the keys of an issuer", extra={"issuer": issuer.url})
        else:
            gone = any(keys.get(key_id) != key for key_id, key in issuer.keys.items())
            issuer.keys, issuer.fetched = keys, self._io.clock.monotonic()
            if gone:
                # The issuer has withdrawn keys: authenticate clients again.
                for changed in self._changed:
                    changed()
        finally:
            issuer.fetching = False
            waiting, issuer.waiting = issuer.waiting, []
            for one in waiting:
                if not one.done():
                    one.set_result(None)

    def _read(self, url: str) -> Mapping[str, TokenKey]:
        """Fetches keys, on the worker.

        :raises FetchFailed: there is no answer, or the document is malformed
        """
        document = _object(self._fetch(url.rstrip("/") + _DISCOVERY), "the discovery document")
        if document.get("issuer") != url:
            raise FetchFailed(
                f"the discovery document names the issuer {document.get('issuer')!r:.200}, not {url!r}"
            )
        keys_at = document.get("jwks_uri")
        if not isinstance(keys_at, str) or not keys_at.startswith(("https://", "http://")):
            raise FetchFailed("the discovery document has no jwks_uri")
        if self._secure and not keys_at.startswith("https://"):
            raise FetchFailed("jwks_uri in the discovery document must be an https address")
        return keys_in(self._fetch(keys_at))

    def listen(self, changed: Callable[[], None]) -> None:
        self._changed.append(changed)

    async def close(self) -> None:
        self._worker.close()


def keys_in(document: bytes) -> Mapping[str, TokenKey]:
    """Returns those keys of a JWKS document that are for signatures, by id.

    :raises FetchFailed: the document is malformed
    """
    listed = _object(document, "the list of keys").get("keys")
    if not isinstance(listed, list):
        raise FetchFailed("the list of keys has no array named keys")
    if len(listed) > _MAX_KEYS:
        raise FetchFailed(f"the list has {len(listed)} keys; at most {_MAX_KEYS} are accepted")
    found: dict[str, TokenKey] = {}
    for one in listed:
        if not isinstance(one, dict) or not isinstance(one.get("kid"), str):
            continue
        if one.get("use", "sig") != "sig":
            continue
        try:
            key = jwt.PyJWK(one).key
            if isinstance(key, (RSAPublicKey, EllipticCurvePublicKey)):
                usable = key_of(key)
                named = one.get("alg")
                if named is None or named in usable.algorithms:
                    found[one["kid"]] = usable if named is None else TokenKey((named,), usable.key)
        except (jwt.PyJWTError, UnusableKey, ValueError, TypeError, KeyError) as error:
            log.warning("key of an issuer ignored", extra={"kid": one["kid"], "reason": str(error)})
    return found


def _object(data: bytes, what: str) -> Mapping[str, object]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise FetchFailed(f"{what} is not JSON") from error
    if not isinstance(found, dict):
        raise FetchFailed(f"{what} is not an object")
    return found
