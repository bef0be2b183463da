"""What the metadata did not record of an end shows in the exit code of the process."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from magnetar.exit_codes import FAILED, SUCCEEDED
from magnetar.server.broker_process import _stop


class Stopped:
    """A broker, or HTTP, that has been stopped."""

    def __init__(self, complete: bool) -> None:
        self.complete = complete

    async def stop(self, _seconds: float = 0.0) -> bool:
        return self.complete


@pytest.mark.parametrize(("complete", "code"), [(True, SUCCEEDED), (False, FAILED)])
def test_the_exit_code_says_whether_all_of_it_was_recorded(
    complete: bool, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    parts: Any = Stopped(complete)
    assert asyncio.run(_stop(parts, parts, 5)) == code
    said = [each.message for each in caplog.records if each.levelno == logging.ERROR]
    assert any("metadata" in each for each in said) == (not complete)
