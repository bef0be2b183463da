"""Finds the entry filters that the settings name."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from magnetar.broker.dispatch.filters import EntryFilter, FindFilters, UnknownFilter
from magnetar.config.settings import ConfigurationError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

log = logging.getLogger(__name__)

GROUP = "magnetar.entry_filters"
"""Settings can name filters that are entry points of installed packages in this group."""


def find_filters(named: tuple[str, ...]) -> FindFilters:
    """Returns a function that finds the filters named by policies.

    Policies can name only entry points of the group and the filters of the broker's settings. Otherwise a
    user with permission to set policies could have the broker load any module.

    :param named: ``entryFilterNames``
    """

    def find(names: Sequence[str]) -> Sequence[EntryFilter]:
        for name in names:
            if name not in named and (":" in name or not _points(name)):
                raise UnknownFilter(name)
        try:
            return load_entry_filters(tuple(names))
        except ConfigurationError as error:
            log.error("cannot load an entry filter", extra={"error": str(error)})
            raise UnknownFilter(names[0]) from error

    return find


@cache
def load_entry_filters(names: tuple[str, ...]) -> tuple[EntryFilter, ...]:
    """Creates one filter of each name; called once per process.

    :param names: of entry points of the group, or ``module:Class``
    :raises ConfigurationError: a filter cannot be found or created; the text names it
    """
    problems: list[str] = []
    found: list[EntryFilter] = []
    for name in names:
        try:
            made = _class_of(name)()
        except Exception as error:  # noqa: BLE001 - code of an operator; whatever it raises stops the start
            problems.append(f"entryFilterNames: {name} cannot be loaded: {error or type(error).__name__}")
            continue
        if callable(getattr(made, "filter_entry", None)):
            found.append(made)
        else:
            problems.append(f"entryFilterNames: {name} has no method filter_entry")
    if problems:
        raise ConfigurationError(problems)
    return tuple(found)


def _points(name: str) -> EntryPoints:
    # Most brokers have no filters, and importing the module takes 10 ms.
    from importlib.metadata import entry_points

    return entry_points(group=GROUP, name=name)


def _class_of(name: str) -> Any:
    module, colon, attribute = name.partition(":")
    if colon:
        return getattr(import_module(module), attribute)
    points = _points(name)
    if not points:
        raise LookupError(f"no installed package has an entry point with this name in {GROUP}")
    return next(iter(points)).load()
