"""What a load balancer asks: whether a process is to be used (``statusFilePath``)."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus

from magnetar.http.engine.message import Response, error_response, text_response


def rotation(is_there: Callable[[], bool] | None, name: str) -> Response:
    """200 as long as the file is there.

    :param is_there: None: no file was named
    :param name: of what it is about
    """
    if is_there is not None and is_there():
        return text_response("OK", content_type="text/plain")
    return error_response(HTTPStatus.NOT_FOUND, f"This {name} is not in rotation")
