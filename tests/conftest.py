"""What holds for all tests."""

import compileall
import os
import signal
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from magnetar.invariants import BrokenInvariant

SOURCE = Path(__file__).parents[1] / "src"

# How long an example takes says how busy the machine is.
settings.register_profile("magnetar", deadline=None)
settings.load_profile("magnetar")

# What a script starts in its background ignores Ctrl-C, and so would all that the tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    """Compiles modules that changed, once for all processes that tests start.

    With PYTHONDONTWRITEBYTECODE each of them would compile all that it imports: a broker, for one second.
    """
    config.addinivalue_line(
        "markers", "plants: plants violations of invariants; any other test fails with one"
    )
    if not hasattr(config, "workerinput"):
        compileall.compile_dir(SOURCE, quiet=1)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Appends each failure, with the last lines of its report and of what the test printed, to the file that
    tools/suites names.

    Only the end of a long output may be kept; tools/suites prints the failures of all suites there.
    """
    if not (file := os.environ.get("MAGNETAR_FAILURES")) or hasattr(terminalreporter.config, "workerinput"):
        return
    with Path(file).open("a", encoding="utf-8") as output:
        for outcome in ("failed", "error"):
            for report in terminalreporter.stats.get(outcome, []):
                lines = report.longreprtext.splitlines()[-12:] + report.capstdout.splitlines()[-5:]
                output.write("\n".join([f"=== {outcome}: {report.nodeid}", *lines, ""]))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Fails a test in whose process an invariant was violated, even if some code has caught the error."""
    found: list[BrokenInvariant] = []
    make = BrokenInvariant.__init__

    def noted(self: BrokenInvariant, *arguments: Any, **named: Any) -> None:
        make(self, *arguments, **named)
        found.append(self)

    BrokenInvariant.__init__ = noted  # type: ignore[method-assign]
    try:
        result = yield
    finally:
        BrokenInvariant.__init__ = make  # type: ignore[method-assign]
    if found and item.get_closest_marker("plants") is None:
        raise found[0]
    return result
