"""The flags of commands that use a broker: its address and the credentials."""

from __future__ import annotations

import argparse


def add_access_flags(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--admin-url", metavar="URL", help="HTTP address of any broker (http://localhost:8080)"
    )
    command.add_argument(
        "--auth-plugin", metavar="CLASS", help="authentication plugin of Pulsar, or token, basic, tls"
    )
    command.add_argument("--auth-params", metavar="TEXT", help="credentials for the authentication plugin")
    command.add_argument(
        "--tls-trust-cert-path", metavar="FILE", help="PEM file with the trusted certificate authorities"
    )


def access_values(parsed: argparse.Namespace) -> dict[str, str | None]:
    """Returns the values of the flags by the names of ``client.conf``."""
    return {
        "webServiceUrl": parsed.admin_url,
        "authPlugin": parsed.auth_plugin,
        "authParams": parsed.auth_params,
        "tlsTrustCertsFilePath": parsed.tls_trust_cert_path,
    }
