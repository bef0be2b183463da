"""Which numbers of copies may be asked for."""

from __future__ import annotations

import pytest

from magnetar.broker.policies.effective import EffectivePolicies
from magnetar.broker.policies.rules import check_namespace, check_topic
from magnetar.broker.policies.values import Persistence
from magnetar.errors import InvalidRequest, PreconditionFailed


def policies(ensemble: int, write: int, ack: int) -> EffectivePolicies:
    return EffectivePolicies(persistence=Persistence(ensemble, write, ack))


@pytest.mark.parametrize("copies", [(1, 1, 1), (3, 1, 1), (3, 2, 2), (5, 3, 2)])
def test_as_many_as_the_ledger_store_keeps(copies: tuple[int, int, int]) -> None:
    asked = policies(*copies)
    check_namespace(asked, "persistence", one_copy=False)
    check_topic(asked, "persistence", 0, one_copy=False)
    if copies[1] == 1:
        check_namespace(asked, "persistence")
        check_topic(asked, "persistence", 0)
        return
    with pytest.raises(PreconditionFailed, match="one copy"):
        check_namespace(asked, "persistence")
    with pytest.raises(PreconditionFailed, match="one copy"):
        check_topic(asked, "persistence", 0)


@pytest.mark.parametrize("copies", [(2, 3, 2), (3, 2, 3), (6, 3, 3), (0, 0, 0)])
def test_none_that_contradict_each_other(copies: tuple[int, int, int]) -> None:
    with pytest.raises(InvalidRequest):
        check_namespace(policies(*copies), "persistence", one_copy=False)
