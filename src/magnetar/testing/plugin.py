"""The pytest plugin: fixtures ``broker`` and ``broker_factory``, and the marker ``broker``.

If Magnetar is installed, every test session imports the plugin; so the plugin imports other modules only when
a test needs a broker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from magnetar.testing.broker import Broker
    from magnetar.testing.kept import Keeper

_FIXTURE = "broker_factory"
"""The fixture by which tests with a broker are recognized; a fixture named ``broker`` could belong to another
plugin.
"""
_OPTIONS = frozenset({"settings", "config"})
_SHOWN = 4000
"""Maximum number of characters of a broker's log in the report of a failed test."""

_keeper = pytest.StashKey["Keeper"]()
_brokers = pytest.StashKey[list["Broker"]]()


def pytest_configure(config: pytest.Config) -> None:
    """Registers the marker ``broker``."""
    config.addinivalue_line(
        "markers",
        "broker(settings={...}, config=FILE): settings of the test's Magnetar broker, by Pulsar's names",
    )


def pytest_collection_finish(session: pytest.Session) -> None:
    """Starts the warm process if any test needs a broker; its imports run while other tests run."""
    if session.config.option.collectonly:
        return
    if any(_FIXTURE in getattr(item, "fixturenames", ()) for item in session.items):
        _kept(session.config)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Ends the warm process and all brokers that it has started."""
    keeper = config.stash.get(_keeper, None)
    if keeper is not None:
        del config.stash[_keeper]
        keeper.close()


def _kept(config: pytest.Config) -> Keeper:
    from magnetar.testing.kept import Keeper

    if _keeper not in config.stash:
        config.stash[_keeper] = Keeper()
    return config.stash[_keeper]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Any:
    """Adds the logs of brokers to the report of a failed test."""
    report = yield
    if report.failed:
        for broker in item.stash.get(_brokers, ()):
            if text := broker.log[-_SHOWN:]:
                report.sections.append((f"log of {broker.service_url}", text))
    return report


@pytest.fixture
def broker_factory(request: pytest.FixtureRequest) -> Iterator[Callable[..., Broker]]:
    """Returns a function that starts brokers for one test: ``broker_factory(settings=None, config=None)``,
    with the arguments of the marker ``broker``.
    """
    from magnetar.testing.broker import Broker

    keeper = _kept(request.config)
    started: list[Broker] = request.node.stash.setdefault(_brokers, [])

    def start(settings: dict[str, Any] | None = None, *, config: str | Path | None = None) -> Broker:
        broker = Broker(keeper, settings, config)
        started.append(broker)
        broker.start()
        return broker

    yield start
    failed: list[Exception] = []
    while started:
        try:
            started.pop().close()
        except Exception as error:  # noqa: BLE001 - raised below: the others have to end, too
            failed.append(error)
    if failed:
        raise failed[0] if len(failed) == 1 else ExceptionGroup("brokers did not end well", failed)


@pytest.fixture
def broker(request: pytest.FixtureRequest, broker_factory: Callable[..., Broker]) -> Broker:
    """A Magnetar broker for this test alone; ``@pytest.mark.broker(settings={...})`` configures it."""
    marker = request.node.get_closest_marker("broker")
    options = dict(marker.kwargs) if marker is not None else {}
    unknown = sorted(options.keys() - _OPTIONS)
    if unknown or (marker is not None and marker.args):
        raise pytest.UsageError(
            f"the marker broker accepts {' and '.join(sorted(_OPTIONS))} as keyword arguments, not "
            f"{', '.join([*unknown, *map(repr, marker.args if marker is not None else ())])}"
        )
    return broker_factory(options.get("settings"), config=options.get("config"))
