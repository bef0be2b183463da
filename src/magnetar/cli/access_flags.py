"""The flags of commands that ask a broker: where it is, and who asks."""

from __future__ import annotations

import argparse


def add_access_flags(command: argparse.ArgumentParser) -> None:
    command.add_argument("--admin-url", metavar="URL", help="of any broker (http://localhost:8080)")
    command.add_argument("--auth-plugin", metavar="CLASS", help="how to prove who asks; or token, basic, tls")
    command.add_argument("--auth-params", metavar="TEXT", help="what proves it")
    command.add_argument(
        "--tls-trust-cert-path", metavar="FILE", help="who may have issued the broker's certificate"
    )


def access_values(parsed: argparse.Namespace) -> dict[str, str | None]:
    """What they say, by the names of ``client.conf``."""
    return {
        "webServiceUrl": parsed.admin_url,
        "authPlugin": parsed.auth_plugin,
        "authParams": parsed.auth_params,
        "tlsTrustCertsFilePath": parsed.tls_trust_cert_path,
    }
