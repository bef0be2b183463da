"""Answers load balancers whether to use a process (``statusFilePath``)."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus

from magnetar.http.engine.message import Response, error_response, text_response


def rotation(is_there: Callable[[], bool] | None, name: str) -> Response:
    """Returns 200 while the file exists.

    :param is_there: whether the file exists; None: the setting names no file
    :param name: of the kind of process, for the reason
    """
    if is_there is not None and is_there():
        return text_response("OK", content_type="text/plain")
    return error_response(HTTPStatus.NOT_FOUND, f"This {name} is not in rotation")
