"""Method ``token``: a JWT that is signed with a configured key.

Settings have the same meaning as in Pulsar's ``AuthenticationProviderToken``; claims are those of RFC 7519.
The key determines the accepted algorithms, never the token (RFC 8725, 3.1).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_der_public_key, load_pem_public_key

from magnetar.io.interfaces import Io, Worker
from magnetar.io.tasks import TaskScope, owner_goes_on
from magnetar.io.waiting import run_job
from magnetar.lazy_dataclass import dataclass
from magnetar.security.authentication import Authenticated, Credentials, refused
from magnetar.security.key_material import KeySource, UnusableKey, WatchedFiles, key_source
from magnetar.security.options import SecurityOptions

log = logging.getLogger(__name__)

MAX_TOKEN_BYTES = 64 << 10
_WATCH_SECONDS = 1.0
_SECRET_BYTES = {"HS256": 32, "HS384": 48, "HS512": 64}
_CURVES = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}
_RSA = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_PUBLIC = {**dict.fromkeys(_RSA, RSAPublicKey), **dict.fromkeys(_CURVES.values(), EllipticCurvePublicKey)}
_MIN_RSA_BITS = 2048
_NEVER = 1 << 50


@dataclass(frozen=True, slots=True)
class TokenKey:
    """A key for checking signatures, with its algorithms."""

    algorithms: tuple[str, ...]
    """The accepted algorithms."""
    key: bytes | RSAPublicKey | EllipticCurvePublicKey = field(repr=False)


@dataclass(frozen=True, slots=True)
class TokenRules:
    """Requirements on the claims of a token."""

    role_claim: str = "sub"
    audience_claim: str = ""
    audience: str = ""
    leeway_seconds: int = 0


def secret_key(secret: bytes) -> TokenKey:
    """Returns a symmetric key.

    :raises UnusableKey: the key is shorter than 256 bits
    """
    algorithms = tuple(name for name, least in _SECRET_BYTES.items() if len(secret) >= least)
    if not algorithms:
        raise UnusableKey(
            f"the secret key has {len(secret)} bytes; HS256 requires at least 32 (RFC 7518, 3.2)"
        )
    return TokenKey(algorithms, secret)


def public_key(encoded: bytes, algorithm: str = "RS256") -> TokenKey:
    """Returns a public key from DER or PEM (X.509 SubjectPublicKeyInfo).

    :param algorithm: ``tokenPublicAlg``, which determines the kind of key
    :raises UnusableKey: the bytes are not a key, or the key is of another kind or too short
    """
    wanted = _PUBLIC.get(algorithm)
    if wanted is None:
        raise UnusableKey(f"algorithm {algorithm!r} is not supported; use one of {', '.join(_PUBLIC)}")
    try:
        pem = encoded.lstrip().startswith(b"-----BEGIN")
        found = load_pem_public_key(encoded) if pem else load_der_public_key(encoded)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise UnusableKey("the public key is neither DER nor PEM") from error
    if not isinstance(found, wanted):
        raise UnusableKey(
            f"this kind of key cannot be used with {algorithm}; "
            f"use {'an EC' if wanted is EllipticCurvePublicKey else 'an RSA'} key"
        )
    assert isinstance(found, (RSAPublicKey, EllipticCurvePublicKey))
    return key_of(found)


def key_of(found: RSAPublicKey | EllipticCurvePublicKey) -> TokenKey:
    """Returns a public key with its algorithms.

    :raises UnusableKey: the RSA key is too short, or the curve is not supported
    """
    if isinstance(found, RSAPublicKey):
        if found.key_size < _MIN_RSA_BITS:
            raise UnusableKey(f"the RSA key has {found.key_size} bits; at least {_MIN_RSA_BITS} are required")
        return TokenKey(_RSA, found)
    curve = _CURVES.get(found.curve.name)
    if curve is None:
        raise UnusableKey(f"the curve {found.curve.name} is not one of {', '.join(_CURVES)}")
    return TokenKey((curve,), found)


def claims_of(token: bytes, key: TokenKey, leeway_seconds: int) -> Mapping[str, object]:
    """Returns the claims of a token, after checking its signature and times.

    :raises AuthenticationFailure: the bytes are not a token that is signed with the key, or the token is not
        yet valid or has expired
    """
    if not token:
        raise refused("No token")
    if len(token) > MAX_TOKEN_BYTES:
        raise refused("The token is too long")
    # The time of issue does not affect the validity (RFC 7519, 4.1.6).
    unasked = ("aud", "iss", "sub", "jti", "iat")
    checks = {f"verify_{claim}": False for claim in unasked}
    try:
        found: Mapping[str, object] = jwt.decode(
            token,
            key.key,
            algorithms=list(key.algorithms),
            leeway=leeway_seconds,
            options=checks,  # type: ignore[arg-type]
        )
    except jwt.ExpiredSignatureError as error:
        raise refused("The token has expired") from error
    except jwt.ImmatureSignatureError as error:
        raise refused("The token is not valid yet") from error
    except (jwt.InvalidAlgorithmError, jwt.InvalidKeyError) as error:
        raise refused("The algorithm of the token does not match the key") from error
    except jwt.InvalidSignatureError as error:
        raise refused("The token's signature is wrong") from error
    except (jwt.PyJWTError, ValueError, TypeError, RecursionError, OverflowError) as error:
        raise refused("The token cannot be read") from error
    return found


def authenticated_by(claims: Mapping[str, Any], rules: TokenRules) -> Authenticated:
    """Returns the role in the claims of a token.

    :raises AuthenticationFailure: the token has no role, or is for another audience
    """
    if rules.audience_claim:
        audiences = claims.get(rules.audience_claim)
        meant = audiences if isinstance(audiences, list) else [audiences]
        if rules.audience not in meant:
            raise refused("The token is for another audience")
    role = claims.get(rules.role_claim)
    if isinstance(role, list):
        role = role[0] if role else None
    if not isinstance(role, str) or not role:
        raise refused(f"The token has no role in {rules.role_claim!r}")
    expires = claims.get("exp")
    return Authenticated(
        role, float(min(int(expires), _NEVER) + rules.leeway_seconds) if expires is not None else None
    )


def token_rules(options: SecurityOptions) -> TokenRules:
    """Returns the rules by which tokens are checked.

    :raises ProviderRefused: settings contradict each other or are malformed
    """
    claim, audience = options.text("tokenAudienceClaim"), options.text("tokenAudience")
    if claim and not audience:
        options.refuse("tokenAudience", "must be set, because tokenAudienceClaim is")
    if audience and not claim:
        options.refuse("tokenAudienceClaim", "must be set, because tokenAudience is")
    return TokenRules(
        role_claim=options.text("tokenAuthClaim", "sub"),
        audience_claim=claim,
        audience=audience,
        leeway_seconds=options.whole("tokenAllowedClockSkewSeconds", 0, high=86_400),
    )


class TokenProvider:
    """Implements :class:`magnetar.security.authentication.Provider` for tokens."""

    method = "token"

    def __init__(self, io: Io, worker: Worker, options: SecurityOptions) -> None:
        """Reads the key.

        :raises ProviderRefused: no key is configured, or the key cannot be used
        """
        options = options.prefixed(options.text("tokenSettingPrefix"))
        self._io = io
        self._tasks = TaskScope(io.loop, "keys of tokens", owner_goes_on)
        self._worker = worker
        self._rules = token_rules(options)
        self._name, self._load = _loader(options)
        self._source = _source(options, self._name)
        try:
            self._key: TokenKey | None = self._load(self._source.read())
        except UnusableKey as error:
            options.refuse(self._name, f"cannot be used: {error}")
        self._listeners: list[Callable[[], None]] = []
        files = [self._source.path] if self._source.path is not None else []
        self._watched = WatchedFiles(io, worker, files, _WATCH_SECONDS, self._changed)

    def _changed(self) -> None:
        self._tasks.start(self._reload(), "reading the changed file")

    async def _reload(self) -> None:
        """Reads the changed key file. If it cannot be used, all tokens are refused."""
        try:
            self._key = self._load(await run_job(self._io.loop, self._worker, self._source.read))
        except UnusableKey as error:
            log.error("refusing all tokens: the key cannot be used", extra={"reason": str(error)})
            self._key = None
        for changed in self._listeners:
            changed()

    async def authenticate(self, credentials: Credentials) -> Authenticated:
        if self._key is None:
            raise refused("The key for verifying tokens cannot be read")
        return authenticated_by(
            claims_of(credentials.data, self._key, self._rules.leeway_seconds), self._rules
        )

    def listen(self, changed: Callable[[], None]) -> None:
        self._listeners.append(changed)

    async def close(self) -> None:
        self._watched.close()


def _loader(options: SecurityOptions) -> tuple[str, Callable[[bytes], TokenKey]]:
    """Returns the name of the setting with the key, and the parser of the key; a secret key takes precedence
    over a public key."""
    if options.text("tokenSecretKey"):
        return "tokenSecretKey", secret_key
    if not options.text("tokenPublicKey"):
        options.refuse("tokenSecretKey", "or tokenPublicKey must be set, to verify tokens")
    algorithm = options.text("tokenPublicAlg", "RS256")
    return "tokenPublicKey", lambda encoded: public_key(encoded, algorithm)


def _source(options: SecurityOptions, name: str) -> KeySource:
    try:
        return key_source(options.text(name))
    except UnusableKey as error:
        options.refuse(name, f"cannot be used: {error}")
