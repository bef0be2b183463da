"""Names of packages: ``type://tenant/namespace/name@version``."""

from __future__ import annotations

from magnetar.lazy_dataclass import dataclass
from magnetar.naming.name_rules import InvalidName

TYPES = ("function", "sink", "source")
LATEST = "latest"
"""The version of a package if its name states none."""

_NOWHERE = frozenset("/\\@\0")
"""Characters that no part may contain."""


def check_type(text: str) -> None:
    """Checks the type of a package.

    :raises InvalidName: the type does not exist
    """
    if text not in TYPES:
        raise InvalidName(f"Invalid package type '{text}': must be one of {', '.join(TYPES)}")


def check_parts(**parts: str) -> None:
    """Checks the parts of a package's name.

    :raises InvalidName: a part is not valid in a package's name
    """
    for what, text in parts.items():
        if text in ("", ".", "..") or _NOWHERE & set(text):
            raise InvalidName(f"Invalid package {what} '{text}'")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InvalidName(f"Invalid package {what} {text!r}") from error


@dataclass(frozen=True, slots=True)
class PackageName:
    """The name of a package; the constructor raises InvalidName if the name breaks the rules."""

    type: str
    tenant: str
    namespace: str
    name: str
    version: str

    def __post_init__(self) -> None:
        check_type(self.type)
        check_parts(tenant=self.tenant, namespace=self.namespace, name=self.name, version=self.version)

    @classmethod
    def parse(cls, text: str) -> PackageName:
        """Parses the name of a package.

        :raises InvalidName: the string is not the name of a package
        """
        kind, separator, rest = text.partition("://")
        rest, _at, version = rest.partition("@")
        tenant, _slash, rest = rest.partition("/")
        namespace, _slash, name = rest.partition("/")
        if not separator:
            raise InvalidName(f"Invalid package name '{text}': must be type://tenant/namespace/name@version")
        return cls(kind, tenant, namespace, name, version or LATEST)

    def __str__(self) -> str:
        return f"{self.type}://{self.tenant}/{self.namespace}/{self.name}@{self.version}"
