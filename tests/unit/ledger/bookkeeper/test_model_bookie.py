"""The model of a bookie answers as Apache's did when it was asked the same, byte by byte.

``data/conversation.tsv``: what was asked, how, and the answer; empty where the bookie closed the connection.
"""

from __future__ import annotations

from pathlib import Path

from model_bookie import ModelBookie
from recorded_conversation import StreamClient, rows
from simulated_io import simulated_io

_ROWS = rows(Path(__file__).parent / "data" / "conversation.tsv")


def test_a_recorded_conversation() -> None:
    simulation = simulated_io(1)
    loop = simulation.loop
    bookie = ModelBookie(loop)
    bookie.disk = (270553174016, 74656419840)
    loop.run_until(simulation.host.listen("", 3181, bookie.factory))
    wrong = []
    for name, request, answer in _ROWS:
        client = StreamClient()
        loop.run_until(simulation.host.connect("localhost", 3181, lambda client=client: client))  # type: ignore[misc]
        client.transport.write(bytes.fromhex(request))
        loop.run_for(1)
        if (client.received.hex(), client.closed) != (answer, not answer):
            wrong.append((name, client.received.hex(), client.closed, answer))
        client.transport.close()
        loop.run_for(1)
    assert len(_ROWS) > 70
    assert not wrong, "\n".join(map(str, wrong))
