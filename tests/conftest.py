"""What holds for all tests."""

import compileall
import signal
from pathlib import Path

import pytest
from hypothesis import settings

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
    if not hasattr(config, "workerinput"):
        compileall.compile_dir(SOURCE, quiet=1)
