import pytest

from magnetar.protocol.frames import signed, unsigned


@pytest.mark.parametrize(
    ("wire", "inside"),
    [(0, 0), (1, 1), (2**63 - 1, 2**63 - 1), (2**63, -(2**63)), (2**64 - 1, -1), (2**64 - 2, -2)],
)
def test_ids_over_the_whole_range(wire: int, inside: int) -> None:
    assert signed(wire) == inside
    assert unsigned(inside) == wire
