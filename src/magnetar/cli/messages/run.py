"""The common part of ``tail``, ``produce`` and ``consume``: access, a client, and the exit code."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from magnetar.admin_client import AdminClient, AdminError
from magnetar.cli.cluster_access import AccessRefused, ClusterAccess, cluster_access, error_text
from magnetar.cli.command_lines import Refused, access_values
from magnetar.cli.messages.lines import Print, SchemaDecoders, printer, warn
from magnetar.cli.streams import discard_output
from magnetar.client import Client, CryptoKeyReader, PulsarException
from magnetar.exit_codes import FAILED, SUCCEEDED
from magnetar.naming.name_rules import InvalidName


@dataclass(frozen=True, slots=True)
class Ends:
    """The connections to a cluster: a client for messages, and the admin interface."""

    client: Client
    admin: AdminClient
    access: ClusterAccess
    private_key: CryptoKeyReader | None = None
    """Supplies the private key that decrypts messages; None: encrypted messages are not decrypted."""

    def printer(self, parsed: argparse.Namespace) -> Print:
        """Returns a function that prints a message in the form of ``--output``."""
        return printer(parsed.output, SchemaDecoders(self.client, warn))


def run(parsed: argparse.Namespace, work: Callable[[Ends, argparse.Namespace], None]) -> int:
    """Runs ``work``, the body of a command; returns the exit code: 0 success, also after an interrupt or when
    the output was closed; 1 failure.
    """
    try:
        access = cluster_access({**access_values(parsed), "brokerServiceUrl": parsed.url})
        admin = AdminClient(access.admin_url, authentication=access.authentication, tls=access.tls)
        with Client(access.service_url, **access.client_options()) as client:
            work(Ends(client, admin, access, _private_key(parsed)), parsed)
    except BrokenPipeError:
        discard_output()
    except (AccessRefused, AdminError, PulsarException, InvalidName, Refused, OSError) as error:
        warn(f"{parsed.command} {parsed.topic}: {error_text(error)}")
        return FAILED
    except KeyboardInterrupt:
        return SUCCEEDED
    return SUCCEEDED


def _private_key(parsed: argparse.Namespace) -> CryptoKeyReader | None:
    """Returns the key reader for ``--private-key``; None: the flag is not given.

    :raises CryptoError: the key cannot be read
    """
    return private_key("--private-key", getattr(parsed, "private_key", None))


def private_key(flag: str, given: str | None) -> CryptoKeyReader | None:
    """Returns a key reader for decryption with the private key that a flag gives.

    :param given: the path, or the ``file:`` or ``data:`` URL, of a key in PEM; None: no decryption, the
        function returns None
    :raises CryptoError: the key cannot be read
    """
    if given is None:
        return None
    reader = CryptoKeyReader(private_key_path=given)
    # Check before receiving messages.
    reader.private_key(flag)
    return reader


def paced(rate: float) -> Iterator[None]:
    """Yields forever, at most ``rate`` times per second; if ``rate`` is 0, without a limit."""
    due = time.monotonic()
    while True:
        if rate:
            time.sleep(max(0.0, due - time.monotonic()))
            due = max(due, time.monotonic() - 1) + 1 / rate
        yield
