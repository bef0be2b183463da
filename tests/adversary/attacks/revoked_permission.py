"""WebSockets are to go on when the permission of their user is gone."""

from __future__ import annotations

import json

import websocket
from target import OWN, Target, path_of

_PERMISSION = "/admin/v2/namespaces/a/ns/permissions/a-user"
_TIMES = 5


def attack(target: Target) -> None:
    for number in range(_TIMES):
        topic = f"{OWN}-revoked-{number}"
        paths = (f"producer/{path_of(topic)}", f"consumer/{path_of(topic)}/s", f"reader/{path_of(topic)}")
        sockets = [target.web_socket(path, "a-user") for path in paths]
        assert target.ask("DELETE", _PERMISSION, "a-admin")[0] == 204
        try:
            for one in sockets:
                # Each has a time-out of its own.
                assert one.recv_data_frame()[0] == websocket.ABNF.OPCODE_CLOSE
            after = target.web_socket(f"producer/{path_of(topic)}", "a-admin")
            after.send(json.dumps({"payload": "eA=="}))
            assert json.loads(after.recv())["result"] == "ok"
            after.close()
        finally:
            assert target.ask("POST", _PERMISSION, "a-admin", ["produce", "consume"])[0] == 204
            for one in sockets:
                one.close()
