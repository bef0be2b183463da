"""Settings that change while brokers run: ``/admin/configuration``, one record for a whole cluster."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence

from magnetar.broker.policies.records import Record, change, create, read
from magnetar.errors import MetadataFailure, PreconditionFailed
from magnetar.io.interfaces import Io
from magnetar.lazy_dataclass import dataclass
from magnetar.metadata.following import Follower
from magnetar.metadata.interface import MetadataStore, NodeDamaged

log = logging.getLogger(__name__)

_PATH = "/admin/configuration"

Apply = Callable[[str | None], bool]
"""Applies a new value of a setting or, if the argument is None, the value in the broker's configuration file;
returns whether the value in effect changed."""


class SettingRefused(ValueError):
    """A string is not a valid value of a setting; the message says what is expected."""


def _anything(_text: str) -> None:
    """Accepts every string."""


@dataclass(frozen=True, slots=True)
class Changeable:
    """A setting that can be changed while the broker runs."""

    apply: Apply
    check: Callable[[str], None] = _anything
    """Checks a value before it is stored; raises :class:`SettingRefused` if the value is invalid."""
    says_who_may: bool = False
    """Whether authorization depends on the setting. After a change, clients that lost a permission are
    disconnected."""


class DynamicSettings:
    def __init__(
        self,
        io: Io,
        metadata: MetadataStore,
        settings: Mapping[str, Changeable],
        changed: Callable[[bool], Awaitable[None]],
        refused: Mapping[str, str] | None = None,
    ) -> None:
        """:param settings: the settings that can be changed, by name

        :param changed: awaited after a change; the argument is whether authorization depends on a changed
            setting
        :param refused: settings that other brokers can change while they run, with the reasons why this
            broker cannot
        """
        self._metadata = metadata
        self._settings = settings
        self._changed = changed
        self._refused = refused or {}
        self._warned: set[str] = set()
        self._follower = (
            Follower(io, metadata, _PATH, "changed settings", self._read_anew) if settings else None
        )

    @property
    def names(self) -> Sequence[str]:
        """Returns the names of the settings that can be changed while the broker runs."""
        return list(self._settings)

    async def start(self) -> None:
        """Applies the stored values, before the broker accepts clients.

        :raises NodeDamaged: the record is not in the form that brokers write
        :raises MetadataError: the record cannot be read
        """
        if not self._settings:
            return
        try:
            await self._take(await self.values())
        except MetadataFailure as error:
            raise NodeDamaged(str(error)) from error

    async def values(self) -> Mapping[str, str]:
        """Returns the stored values that differ from the configuration file, by name.

        :raises MetadataFailure: the record is not in the form that brokers write
        """
        found = await read(self._metadata, _PATH)
        if found is None:
            return {}
        if not all(isinstance(value, str) for value in found.values()):
            wrong = ", ".join(name for name, value in found.items() if not isinstance(value, str))
            raise MetadataFailure(
                f"{_PATH}: the values of all settings must be strings; these are not: {wrong}"
            )
        return found

    async def set(self, name: str, value: str) -> None:
        """Changes a setting; the value applies when this returns, and after every start.

        :raises PreconditionFailed: the setting cannot be changed while the broker runs, or the value is
            invalid
        """
        self._check(name, "update")
        try:
            self._settings[name].check(value)
        except SettingRefused as error:
            raise PreconditionFailed(f"{name}={value}: {error}") from error

        def put(record: Record) -> None:
            record[name] = value

        if not await create(self._metadata, _PATH, {name: value}):
            await change(self._metadata, _PATH, put, MetadataFailure(f"{_PATH} was deleted in the meantime"))
        await self._take(await self.values())

    async def delete(self, name: str) -> None:
        """Removes a stored value, so that the broker's configuration file applies again.

        :raises PreconditionFailed: the setting cannot be changed while the broker runs
        """
        self._check(name, "delete")

        def drop(record: Record) -> None:
            record.pop(name, None)

        if await read(self._metadata, _PATH) is not None:
            await change(self._metadata, _PATH, drop, MetadataFailure(f"{_PATH} was deleted in the meantime"))
        await self._take(await self.values())

    def _check(self, name: str, what: str) -> None:
        if name in self._refused:
            raise PreconditionFailed(f"Can't {what} {name} while brokers run: {self._refused[name]}")
        if name not in self._settings:
            raise PreconditionFailed(f"Can't {what} non-dynamic configuration")

    async def _take(self, values: Mapping[str, str]) -> None:
        for name in values.keys() - self._settings.keys() - self._warned:
            self._warned.add(name)
            log.warning(
                "dynamic setting ignored: this broker cannot change it at runtime", extra={"setting": name}
            )
        others = {
            name: setting for name, setting in self._settings.items() if setting.apply(values.get(name))
        }
        if others:
            log.info("dynamic settings changed", extra={"settings": ", ".join(others)})
            await self._changed(any(setting.says_who_may for setting in others.values()))

    async def _read_anew(self) -> None:
        await self._take(await self.values())

    def stop(self) -> None:
        if self._follower is not None:
            self._follower.stop()
