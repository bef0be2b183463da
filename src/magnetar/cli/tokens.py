"""``magnetar tokens``: creates and checks keys and tokens, with the flags, files and output of ``pulsar
tokens``.
"""

from __future__ import annotations

import argparse
import base64
import binascii
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from magnetar.exit_codes import FAILED, SUCCEEDED

_SECRET_BYTES = {"HS256": 32, "HS384": 48, "HS512": 64}
_CURVES = {"ES256": "SECP256R1", "ES384": "SECP384R1", "ES512": "SECP521R1"}
_RSA_BITS = {"256": 2048, "384": 3072, "512": 4096}
_PUBLIC = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", *_CURVES)
_SECONDS = {
    "s": 1,
    "m": 60,
    "h": 3_600,
    "d": 86_400,
    "w": 7 * 86_400,
    "y": 365 * 86_400,
}
_MOST_TOKEN_BYTES = 1 << 20


class TokensFailed(Exception):
    """The command failed; the error text says why."""


def add_tokens(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the command ``tokens`` to the parser of ``magnetar``."""
    tokens = commands.add_parser(
        "tokens",
        help="create keys and tokens for authentication",
        description="Creates keys and tokens. Flags, files and output are the same as for Apache's command "
        "pulsar tokens.",
    )
    those = tokens.add_subparsers(dest="tokens_command", metavar="COMMAND", required=True)
    secret = those.add_parser("create-secret-key", help="create a new secret key")
    _algorithm(secret, tuple(_SECRET_BYTES), "HS256")
    secret.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="write the key to a file, not to stdout"
    )
    secret.add_argument("-b", "--base64", action="store_true", help="encode the key in base64")
    pair = those.add_parser("create-key-pair", help="create a private and a public key")
    _algorithm(pair, _PUBLIC, "RS256")
    pair.add_argument(
        "--output-private-key",
        type=Path,
        metavar="FILE",
        required=True,
        help="file for the private key (PKCS8, DER)",
    )
    pair.add_argument(
        "--output-public-key",
        type=Path,
        metavar="FILE",
        required=True,
        help="file for the public key (X.509, DER)",
    )
    create = those.add_parser("create", help="create a token")
    _algorithm(create, _PUBLIC, "RS256")
    create.add_argument(
        "-s",
        "--subject",
        metavar="ROLE",
        required=True,
        help="role that the token authenticates (its subject)",
    )
    create.add_argument(
        "-e",
        "--expiry-time",
        type=_seconds,
        metavar="TIME",
        help="lifetime, such as 30m, 1h, 3d or 10y (no expiry)",
    )
    _keys(create, "-pk", "--private-key")
    create.add_argument(
        "-hs",
        "--headers",
        action="append",
        default=[],
        type=_pair,
        metavar="KEY=VALUE",
        help="additional header of the token (repeatable)",
    )
    show = those.add_parser("show", help="print the contents of a token without verifying it")
    _token(show)
    validate = those.add_parser("validate", help="verify a token with a key")
    _algorithm(validate, _PUBLIC, "RS256")
    _keys(validate, "-pk", "--public-key")
    _token(validate)


def _algorithm(parser: argparse.ArgumentParser, names: tuple[str, ...], default: str) -> None:
    parser.add_argument(
        "-a",
        "--signature-algorithm",
        choices=names,
        default=default,
        metavar="NAME",
        help=f"signature algorithm: one of {', '.join(names)} (%(default)s)",
    )


def _keys(parser: argparse.ArgumentParser, short: str, name: str) -> None:
    forms = "file:PATH, data:..., a path, or base64"
    parser.add_argument("-sk", "--secret-key", metavar="KEY", help=f"secret key: {forms}")
    parser.add_argument(
        short, name, dest="pair_key", metavar="KEY", help=f"{name[2:].replace('-', ' ')}: {forms}"
    )


def _token(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "token", nargs="?", metavar="TOKEN", help="token (default: the environment variable TOKEN)"
    )
    parser.add_argument("-i", "--stdin", action="store_true", help="read the token from standard input")
    parser.add_argument("-f", "--token-file", type=Path, metavar="FILE", help="read the token from a file")


def _seconds(text: str) -> int:
    digits, unit = (text, "s") if text.isdecimal() else (text[:-1], text[-1:].lower())
    if not (digits.isascii() and digits.isdecimal()) or unit not in _SECONDS or len(digits) > 9:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a duration; use a form like 30s, 5m, 1h, 3d, 2w or 10y"
        )
    return int(digits) * _SECONDS[unit]


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise argparse.ArgumentTypeError(f"{text!r} is not a header; use key=value")
    if key == "alg":
        raise argparse.ArgumentTypeError(
            "the alg header cannot be set with --headers; use --signature-algorithm"
        )
    return key, value


def run_tokens(parsed: argparse.Namespace) -> int:
    """Runs ``magnetar tokens``; returns the exit code: 0 success, 1 failure."""
    from magnetar.errors import AuthenticationFailure
    from magnetar.security.key_material import UnusableKey

    try:
        _COMMANDS[parsed.tokens_command](parsed)
    except (TokensFailed, UnusableKey, AuthenticationFailure) as error:
        sys.stderr.write(f"{error}\n")
        return FAILED
    except OSError as error:
        sys.stderr.write(f"{error.filename or 'a file'}: {error.strerror or error}\n")
        return FAILED
    return SUCCEEDED


def _create_secret_key(parsed: argparse.Namespace) -> None:
    key = os.urandom(_SECRET_BYTES[parsed.signature_algorithm])
    data = base64.b64encode(key) if parsed.base64 else key
    if parsed.output is not None:
        _write(parsed.output, data, 0o600)
    else:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def _create_key_pair(parsed: argparse.Namespace) -> None:
    from cryptography.hazmat.primitives.asymmetric import ec, rsa
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
    )

    algorithm: str = parsed.signature_algorithm
    key: object
    if algorithm in _CURVES:
        key = ec.generate_private_key(getattr(ec, _CURVES[algorithm])())
    else:
        key = rsa.generate_private_key(65537, _RSA_BITS[algorithm[2:]])
    private = key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    public = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    _write(parsed.output_private_key, private, 0o600)
    _write(parsed.output_public_key, public, 0o644)


def _write(path: Path, data: bytes, mode: int) -> None:
    """Writes ``data`` to a new file with the permissions ``mode``; the complete file then replaces an
    existing file at ``path``. If ``path`` is a device or a pipe, such as /dev/stdout, writes to it instead.
    """
    if path.exists() and not path.is_file():
        path.write_bytes(data)
        return
    part = path.with_name(f"{path.name}.part")
    part.unlink(missing_ok=True)
    number = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(number, "wb") as file:
            file.write(data)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _one_key(parsed: argparse.Namespace, name: str, what: str) -> None:
    if parsed.secret_key and parsed.pair_key:
        raise TokensFailed(f"Only one of --secret-key and {name} can be passed for {what} a token")
    if not parsed.secret_key and not parsed.pair_key:
        raise TokensFailed(f"Either --secret-key or {name} needs to be passed for {what} a token")


def _create(parsed: argparse.Namespace) -> None:
    import jwt

    from magnetar.security.key_material import key_source
    from magnetar.security.providers.tokens import secret_key

    _one_key(parsed, "--private-key", "signing")
    key: Any
    if parsed.secret_key:
        found = secret_key(key_source(parsed.secret_key).read())
        key, algorithm = found.key, found.algorithms[-1]
    else:
        key, algorithm = _private_key(parsed.pair_key, parsed.signature_algorithm), parsed.signature_algorithm
    claims: dict[str, Any] = {"sub": parsed.subject}
    if parsed.expiry_time is not None:
        claims["exp"] = int(time.time()) + parsed.expiry_time
    try:
        made = jwt.encode(claims, key, algorithm, {"typ": None, **dict(parsed.headers)})
    except (jwt.PyJWTError, TypeError, ValueError) as error:
        raise TokensFailed(f"The key cannot sign with {algorithm}: {error}") from error
    sys.stdout.write(f"{made}\n")


def _private_key(text: str, algorithm: str) -> object:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
    from cryptography.hazmat.primitives.serialization import load_der_private_key, load_pem_private_key

    from magnetar.security.key_material import UnusableKey, key_source

    encoded = key_source(text).read()
    pem = encoded.lstrip().startswith(b"-----BEGIN")
    try:
        key = (load_pem_private_key if pem else load_der_private_key)(encoded, None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise UnusableKey("the private key is encrypted, or is neither DER nor PEM") from error
    wanted = EllipticCurvePrivateKey if algorithm in _CURVES else RSAPrivateKey
    if not isinstance(key, wanted):
        raise UnusableKey(
            f"this kind of key cannot be used with {algorithm}; "
            f"use {'an EC' if algorithm in _CURVES else 'an RSA'} key"
        )
    return key


def _given(parsed: argparse.Namespace) -> str:
    if parsed.token:
        found: str = parsed.token
    elif parsed.stdin:
        found = sys.stdin.read(_MOST_TOKEN_BYTES)
    elif parsed.token_file is not None:
        with parsed.token_file.open("rb") as file:
            found = file.read(_MOST_TOKEN_BYTES).decode("ascii", "replace")
    else:
        found = os.environ.get("TOKEN", "")
    if not found.strip():
        raise TokensFailed(
            "No token given; use an argument, --stdin, --token-file or the environment variable TOKEN"
        )
    return found.strip()


def _show(parsed: argparse.Namespace) -> None:
    parts = _given(parsed).split(".")
    if len(parts) != 3:
        raise TokensFailed("The text is not a token: a token has three parts, separated by dots")
    try:
        header, claims = (_decoded(part) for part in parts[:2])
    except (binascii.Error, ValueError) as error:
        raise TokensFailed("The text is not a token: its parts are not JSON in base64") from error
    sys.stdout.write(f"{header}\n---\n{claims}\n")


def _decoded(part: str) -> str:
    raw = base64.b64decode(part + "=" * (-len(part) % 4), altchars=b"-_", validate=True)
    text = raw.decode("utf-8")
    json.loads(text)
    # Characters that are not printable stay escaped.
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def _validate(parsed: argparse.Namespace) -> None:
    from magnetar.security.key_material import key_source
    from magnetar.security.providers.tokens import claims_of, public_key, secret_key

    token = _given(parsed)
    _one_key(parsed, "--public-key", "validating")
    if parsed.secret_key:
        key = secret_key(key_source(parsed.secret_key).read())
    else:
        key = public_key(key_source(parsed.pair_key).read(), parsed.signature_algorithm)
    sys.stdout.write(f"{_shown(claims_of(token.encode(), key, 0))}\n")


def _shown(value: object) -> str:
    """Formats a JSON value as Java's ``toString()`` formats maps and lists."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}={_shown(part)}" for key, part in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_shown, value)) + "]"
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return str(value)


_COMMANDS: Mapping[str, Callable[[argparse.Namespace], None]] = {
    "create-secret-key": _create_secret_key,
    "create-key-pair": _create_key_pair,
    "create": _create,
    "show": _show,
    "validate": _validate,
}
