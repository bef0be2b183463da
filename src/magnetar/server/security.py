"""Creates authentication, authorization and TLS from settings."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from magnetar.broker.policies.dynamic import Changeable
from magnetar.config.reading import SettingsContradict
from magnetar.io.interfaces import Io, Worker
from magnetar.io.tls import TlsFiles, TlsRules
from magnetar.security.authentication import Authenticator, NobodyIsAsked, Provider
from magnetar.security.authorization import Authorizer, EverybodyMay
from magnetar.security.chain import ProviderChain
from magnetar.security.options import ProviderRefused, SecurityOptions
from magnetar.security.rules import Grants, PulsarRules
from magnetar.server.process_settings import ListenerSettings, ServingSettings

log = logging.getLogger(__name__)

PROVIDERS_GROUP = "magnetar.authentication"
"""Entry point group of authentication providers in other packages: callables ``(io, worker, options) ->
Provider``.
"""
AUTHORIZERS_GROUP = "magnetar.authorization"
"""Entry point group of authorizers in other packages: callables ``(io, options, grants, superusers) ->
Authorizer``.
"""

_PULSARS_RULES = "org.apache.pulsar.broker.authorization.PulsarAuthorizationProvider"
_NOT_HERE = {
    "org.apache.pulsar.broker.authentication.AuthenticationProviderAthenz": "Athenz",
    "org.apache.pulsar.broker.authentication.AuthenticationProviderSasl": "Kerberos (SASL)",
}
MakeProvider = Callable[[Io, Worker, SecurityOptions], Provider]


def _certificates(_io: Io, _worker: Worker, _options: SecurityOptions) -> Provider:
    from magnetar.security.providers.passwords import CertificateProvider

    return CertificateProvider()


def _tokens(io: Io, worker: Worker, options: SecurityOptions) -> Provider:
    from magnetar.security.providers.tokens import TokenProvider

    return TokenProvider(io, worker, options)


def _passwords(io: Io, worker: Worker, options: SecurityOptions) -> Provider:
    from magnetar.security.providers.passwords import PasswordProvider

    return PasswordProvider(io, worker, options)


def _openid(io: Io, worker: Worker, options: SecurityOptions) -> Provider:
    from magnetar.security.providers.openid import OpenIdProvider

    return OpenIdProvider(io, worker, options)


_PULSAR = "org.apache.pulsar.broker.authentication.AuthenticationProvider"
_OWN: Mapping[str, MakeProvider] = {
    f"{_PULSAR}Tls": _certificates,
    f"{_PULSAR}Token": _tokens,
    f"{_PULSAR}Basic": _passwords,
    "org.apache.pulsar.broker.authentication.oidc.AuthenticationProviderOpenID": _openid,
    "tls": _certificates,
    "token": _tokens,
    "basic": _passwords,
    "openid": _openid,
}


class Roles:
    """The current roles of superusers and proxies, some of which can change at run time."""

    def __init__(self, settings: ServingSettings) -> None:
        self._of_file = frozenset(settings.super_user_roles), frozenset(settings.proxy_roles)
        self._superusers, self._proxies = self._of_file
        self._replicators_of_file = frozenset(settings.magnetar_replication_roles)
        self._replicators = self._replicators_of_file

    @property
    def dynamic(self) -> Mapping[str, Changeable]:
        """The settings that can change at run time, and functions that apply their changes."""
        return {
            "superUserRoles": Changeable(self._take_superusers, says_who_may=True),
            "proxyRoles": Changeable(self._take_proxies, says_who_may=True),
            "magnetarReplicationRoles": Changeable(self._take_replicators, says_who_may=True),
        }

    def _take_superusers(self, text: str | None) -> bool:
        before, self._superusers = self._superusers, _roles(text, self._of_file[0])
        return before != self._superusers

    def _take_proxies(self, text: str | None) -> bool:
        before, self._proxies = self._proxies, _roles(text, self._of_file[1])
        return before != self._proxies

    def _take_replicators(self, text: str | None) -> bool:
        before, self._replicators = self._replicators, _roles(text, self._replicators_of_file)
        return before != self._replicators

    def superusers(self) -> frozenset[str]:
        return self._superusers

    def proxies(self) -> frozenset[str]:
        return self._proxies

    def replicators(self) -> frozenset[str]:
        return self._replicators


def _roles(text: str | None, of_file: frozenset[str]) -> frozenset[str]:
    if text is None:
        return of_file
    return frozenset(filter(None, map(str.strip, text.split(","))))


def authenticator(
    io: Io,
    settings: ListenerSettings,
    given: Mapping[str, str],
    proxies: Callable[[], frozenset[str]] = frozenset,
) -> Authenticator:
    """Returns the authenticator of clients.

    :param given: the settings in the configuration file by name, with secrets in plain text
    :param proxies: returns the current roles of proxies, which can act on behalf of other roles
    :raises SettingsContradict: a provider is unknown, or cannot work with the settings
    """
    if not settings.authentication_enabled:
        return NobodyIsAsked()
    options = SecurityOptions(given)
    worker = io.start_worker("security")
    providers: list[Provider] = []
    try:
        for name in settings.authentication_providers:
            providers.append(_provider(name)(io, worker, options))
    except ProviderRefused as error:
        raise SettingsContradict(str(error)) from error
    if not providers and not settings.anonymous_user_role:
        raise SettingsContradict(
            "authenticationEnabled requires authenticationProviders or anonymousUserRole: without "
            "either, no client can authenticate"
        )
    if settings.tls_allow_insecure_connection and any(one.method == "tls" for one in providers):
        raise SettingsContradict(
            "tlsAllowInsecureConnection and authentication by TLS cannot be used together: an unverified "
            "certificate does not prove an identity"
        )
    try:
        return ProviderChain(
            io,
            providers,
            anonymous_role=settings.anonymous_user_role,
            proxy_roles=proxies,
            authenticate_original=settings.authenticate_original_auth_data,
            names=[name.rpartition(".")[2] for name in settings.authentication_providers],
        )
    except ProviderRefused as error:
        raise SettingsContradict(str(error)) from error


def _provider(name: str) -> MakeProvider:
    """Returns the function that creates a provider.

    :raises SettingsContradict: no provider has this name
    """
    own = _OWN.get(name)
    if own is not None:
        return own
    if name in _NOT_HERE:
        raise SettingsContradict(
            f"authenticationProviders: {_NOT_HERE[name]} is not supported; use tokens, TLS, Basic or OpenID"
        )
    found: MakeProvider = _entry_point(PROVIDERS_GROUP, name, "authenticationProviders")
    return found


def _entry_point(group: str, name: str, setting: str) -> Any:
    # Most brokers name no class, and importing the module takes 10 ms.
    from importlib.metadata import entry_points

    for entry in entry_points(group=group):
        if entry.name == name:
            try:
                return entry.load()
            except (ImportError, AttributeError) as error:
                raise SettingsContradict(f"{setting}: {name} cannot be loaded: {error}") from error
    raise SettingsContradict(
        f"{setting}: unknown provider {name!r}; use a provider of Pulsar or an installed entry point"
    )


def authorizer(
    io: Io, settings: ServingSettings, given: Mapping[str, str], roles: Roles, grants: Grants
) -> Authorizer:
    """Returns the authorizer.

    :raises SettingsContradict: the provider is unknown, or authentication is not enabled
    """
    if not settings.authorization_enabled:
        return EverybodyMay()
    if not settings.authentication_enabled:
        raise SettingsContradict(
            "authorizationEnabled requires authenticationEnabled: otherwise no client has a role"
        )
    if settings.authorization_provider != _PULSARS_RULES:
        make = _entry_point(AUTHORIZERS_GROUP, settings.authorization_provider, "authorizationProvider")
        made: Authorizer = make(io, SecurityOptions(given), grants, roles.superusers)
        return made
    return PulsarRules(
        grants,
        roles.superusers,
        replicators=roles.replicators,
        wildcards=settings.authorization_allow_wildcards_matching,
    )


def tls_files(settings: ListenerSettings) -> TlsFiles:
    """Returns the files with the broker's certificate, its key and the trusted CA certificates of client
    certificates.

    :raises SettingsContradict: a key store has a type that only Java can read
    """
    if not settings.tls_enabled_with_key_store:
        return TlsFiles(
            settings.tls_certificate_file_path, settings.tls_key_file_path, settings.tls_trust_certs_file_path
        )
    for name, kind, path in (
        ("tlsKeyStoreType", settings.tls_key_store_type, settings.tls_key_store),
        ("tlsTrustStoreType", settings.tls_trust_store_type, settings.tls_trust_store),
    ):
        if path and kind.upper() != "PKCS12":
            raise SettingsContradict(
                f"{name}={kind} is not supported, because only Java reads such key stores; convert it "
                "to PKCS12 (keytool -importkeystore -deststoretype pkcs12)"
            )
    return TlsFiles(
        key_store=settings.tls_key_store,
        key_store_password=settings.tls_key_store_password,
        trust_store=settings.tls_trust_store,
        trust_store_password=settings.tls_trust_store_password,
    )


def tls_rules(settings: ListenerSettings, *, http: bool) -> TlsRules:
    """Returns the TLS versions and ciphers of a listener.

    :param http: whether the listener serves HTTP
    """
    protocols: Sequence[str] = settings.tls_protocols
    ciphers: Sequence[str] = settings.tls_ciphers
    if http:
        protocols = settings.web_service_tls_protocols or protocols
        ciphers = settings.web_service_tls_ciphers or ciphers
    return TlsRules(tuple(protocols), tuple(ciphers))
