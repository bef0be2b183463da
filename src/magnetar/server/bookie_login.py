"""The credentials of a broker for bookies, from the settings of a cluster."""

from __future__ import annotations

from collections.abc import Callable

from magnetar.config.cluster import ClusterSettings
from magnetar.config.jaas import LoginModule, LoginRefused, login_sections
from magnetar.config.settings import SettingsContradict
from magnetar.ledger.bookkeeper.authentication import AuthProvider, digest_auth_provider
from magnetar.protocol.digest_md5 import NameAndPassword

_PLUGIN = "org.apache.bookkeeper.sasl.SASLClientProviderFactory"
_SECTION_NAME = "saslJaasClientSectionName"
_SECTION = "BookKeeper"
_DIGEST = "org.apache.zookeeper.server.auth.DigestLoginModule"
_KERBEROS = "com.sun.security.auth.module.Krb5LoginModule"


def bookie_auth_provider(settings: ClusterSettings, random: Callable[[int], bytes]) -> AuthProvider | None:
    """Returns the authentication towards bookies; None: no authentication.

    :param random: returns the given number of random bytes
    :raises SettingsContradict: the plug-in is not supported, or the login file cannot be used
    """
    plugin = settings.bookkeeper_client_authentication_plugin
    if not plugin:
        return None
    if plugin != _PLUGIN:
        raise SettingsContradict(
            f"bookkeeperClientAuthenticationPlugin={plugin} is not supported; use {_PLUGIN} (DIGEST-MD5)"
        )
    name = settings.bookkeeper_client_authentication_parameters_name
    if name not in ("", _SECTION_NAME):
        raise SettingsContradict(
            f"bookkeeperClientAuthenticationParametersName={name} is not supported; use {_SECTION_NAME}"
        )
    section = settings.bookkeeper_client_authentication_parameters or _SECTION
    return digest_auth_provider(_credentials(settings.magnetar_jaas_config_path, section), random)


def _credentials(path: str, section: str) -> NameAndPassword:
    if not path:
        raise SettingsContradict(
            "bookkeeperClientAuthenticationPlugin requires magnetarJaasConfigPath, the file that Java gets "
            "as -Djava.security.auth.login.config"
        )
    try:
        sections = login_sections(path)
    except LoginRefused as error:
        raise SettingsContradict(f"magnetarJaasConfigPath: {error}") from error
    modules = sections.get(section, ())
    if not modules:
        raise SettingsContradict(
            f"magnetarJaasConfigPath: {path} has no section {section} with a login module"
        )
    module = modules[0]
    if module.name != _DIGEST:
        raise SettingsContradict(f"magnetarJaasConfigPath: {path}, {section}: {_not_here(module)}")
    missing = [option for option in ("username", "password") if not module.options.get(option)]
    if missing:
        raise SettingsContradict(
            f"magnetarJaasConfigPath: {path}, {section}: {module.name} has no {' and no '.join(missing)}"
        )
    return NameAndPassword(module.options["username"], module.options["password"])


def _not_here(module: LoginModule) -> str:
    if module.name == _KERBEROS:
        return f"Kerberos (GSSAPI) is not supported; use a password ({_DIGEST})"
    return f"unknown login module {module.name}; use {_DIGEST}"
