"""Method ``tls``: the role is the common name of the client's certificate, which TLS has verified."""

from __future__ import annotations

from collections.abc import Callable

from magnetar.security.authentication import Authenticated, Credentials, PeerCertificate, refused


class CertificateProvider:
    """See :class:`magnetar.security.authentication.Provider`; Pulsar's ``AuthenticationProviderTls``."""

    method = "tls"

    async def authenticate(self, credentials: Credentials) -> Authenticated:
        if credentials.certificate is None:
            raise refused("No client certificate")
        name = common_name(credentials.certificate)
        if not name:
            raise refused("The client's certificate has no common name")
        return Authenticated(name)

    def listen(self, changed: Callable[[], None]) -> None:
        """Does nothing: a certificate is valid as long as its connection lasts."""

    async def close(self) -> None:
        """Does nothing."""


def common_name(certificate: PeerCertificate) -> str:
    """Returns the CN of the certificate's subject, the most specific one of several; empty: it has none."""
    subject = certificate.get("subject")
    found = ""
    for part in subject if isinstance(subject, tuple) else ():
        for name, value in part:
            if name == "commonName":
                found = value
    return found
