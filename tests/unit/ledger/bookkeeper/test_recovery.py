"""Recovery: what was acknowledged stays, what nobody can rule out ends nothing, and all who try agree."""

from __future__ import annotations

from random import Random

import pytest
from ledger_world import KEY, REQUEST_SECONDS, Client, World, length, payload

from magnetar.ledger.bookkeeper.ledger_record import BookiesUnavailable, WrongPassword
from magnetar.ledger.interface import LedgerError, LedgerState, NoSuchLedger, Quorums


def all_of(last: int) -> list[bytes]:
    return [payload(entry_id) for entry_id in range(last + 1)]


def check_closed(world: World, client: Client, ledger_id: int, last: int) -> None:
    record = world.found(client, ledger_id).record
    assert (record.state, record.last_entry_id, record.length) == (LedgerState.CLOSED, last, length(last))
    assert client.entries(client.open(ledger_id, recover=False)) == all_of(last)


def test_what_bookies_have_is_kept_up_to_the_last_entry() -> None:
    world = World()
    client = world.client()
    ledger_id = world.ledger(client)
    world.store(ledger_id, range(5), (0, 1, 2))
    reader = client.open(ledger_id)
    assert (reader.metadata.state, reader.metadata.last_entry_id) == (LedgerState.CLOSED, 4)
    assert client.fenced == [ledger_id]
    check_closed(world, client, ledger_id, 4)
    for bookie in world.servers.bookies:
        assert bookie.model.ledgers[ledger_id].fenced
    requests = [bookie.model.requests for bookie in world.servers.bookies]
    client.open(ledger_id)
    assert [bookie.model.requests for bookie in world.servers.bookies] == requests, "it is closed already"


def test_an_empty_ledger_and_one_that_nobody_knows() -> None:
    world = World()
    client = world.client()
    ledger_id = world.ledger(client)
    assert client.open(ledger_id).metadata.last_entry_id == -1
    check_closed(world, client, ledger_id, -1)
    with pytest.raises(NoSuchLedger):
        client.open(12345)


def test_any_copy_that_is_found_counts_and_gets_to_the_others() -> None:
    world = World()
    client = world.client()
    ledger_id = world.ledger(client)
    world.store(ledger_id, range(10), (0,), confirmed=-1)
    world.store(ledger_id, range(8), (1,), confirmed=-1)
    world.store(ledger_id, range(6), (2,), confirmed=-1)
    client.open(ledger_id)
    check_closed(world, client, ledger_id, 9)
    for number in range(3):
        found = world.stored(ledger_id, number)
        assert sorted(found) == list(range(10))
        for entry_id, body in found.items():
            assert world.digest.check(ledger_id, entry_id, body).length == length(entry_id)


def test_the_length_of_a_ledger_whose_last_entry_is_behind_a_hole() -> None:
    world = World()
    client = world.client()
    ledger_id = world.ledger(client)
    world.store(ledger_id, range(5), (0, 1, 2))
    # 5 was lost with the bookie that had it; 7 says that 4 was confirmed.
    world.store(ledger_id, [7], (1,), confirmed=4)
    client.open(ledger_id)
    check_closed(world, client, ledger_id, 4)


def test_an_ensemble_changed_behind_what_is_confirmed() -> None:
    world = World(4)
    client = world.client()
    ledger_id = world.ledger(client, (0, (0, 1, 2)), (5, (0, 3, 2)))
    world.store(ledger_id, range(5), (0, 2))
    client.open(ledger_id)
    check_closed(world, client, ledger_id, 4)


def test_an_open_ledger_of_which_auto_recovery_has_copied_some() -> None:
    world = World(4)
    client = world.client()
    ledger_id = world.ledger(client, (0, (3, 1, 2)), (5, (0, 1, 2)))
    world.store(ledger_id, range(5), (3,), confirmed=6, copied=True)
    world.store(ledger_id, range(5, 9), (0, 1), confirmed=6)
    reader = client.open(ledger_id, recover=False)
    assert client.entries(reader) == [payload(entry_id) for entry_id in range(7)]
    client.open(ledger_id)
    check_closed(world, client, ledger_id, 8)


def test_one_bookie_of_three_is_gone() -> None:
    world = World()
    client = world.client()
    ledger_id = world.ledger(client)
    world.store(ledger_id, range(5), (0, 1))
    world.store(ledger_id, [5], (1,))
    world.servers.bookies[2].kill()
    client.open(ledger_id)
    check_closed(world, client, ledger_id, 5)
    assert 5 in world.stored(ledger_id, 0)


def test_two_bookies_of_three_are_gone() -> None:
    world = World()
    client = world.client()
    ledger_id = world.ledger(client)
    world.store(ledger_id, range(5), (0, 1))
    for number in (1, 2):
        world.servers.bookies[number].kill()
    with pytest.raises(BookiesUnavailable, match="cannot be fenced"):
        client.open(ledger_id)
    assert world.found(client, ledger_id).record.state is LedgerState.IN_RECOVERY
    world.servers.bookies[1].start()
    world.loop.run_for(1)
    client.open(ledger_id)
    check_closed(world, client, ledger_id, 4)


def test_what_had_no_ack_quorum_of_all_may_go() -> None:
    world = World(4, Quorums(3, 3, 3))
    client = world.client()
    ledger_id = world.ledger(client)
    world.store(ledger_id, range(3), (0, 1, 2))
    world.store(ledger_id, [3], (0,))
    world.servers.bookies[0].kill()
    world.loop.run_for(5)
    # One that has it not is enough to know; what is added again takes three.
    client.open(ledger_id)
    check_closed(world, client, ledger_id, 2)
    assert world.found(client, ledger_id).record.segments[-1].ensemble == world.bookies(3, 1, 2)


def test_nothing_is_closed_short_where_nobody_can_tell() -> None:
    world = World(quorums=Quorums(3, 3, 2))
    client = world.client()
    ledger_id = world.ledger(client)
    world.store(ledger_id, range(4), (0, 1, 2))
    world.store(ledger_id, [4], (2,))
    opening = client.start(client.opening.open(ledger_id, recover=True))
    # All are fenced; then the one with the entry falls silent, and one of those without.
    world.servers.bookies[2].model.silent = True
    world.loop.run_for(0.0022)
    world.servers.bookies[1].model.silent = True
    with pytest.raises(BookiesUnavailable):
        world.run(opening)
    assert world.found(client, ledger_id).record.state is LedgerState.IN_RECOVERY
    for bookie in world.servers.bookies:
        bookie.model.silent = False
    client.open(ledger_id)
    assert world.found(client, ledger_id).record.last_entry_id >= 3


def test_a_bookie_that_fails_while_it_is_added_to_is_replaced() -> None:
    world = World(4)
    client = world.client()
    ledger_id = world.ledger(client)
    world.store(ledger_id, range(3), (0, 1, 2))
    world.store(ledger_id, range(3, 40), (0,), confirmed=2)
    for number in (1, 2, 3):
        world.servers.bookies[number].model.read_only = True
    with pytest.raises(BookiesUnavailable, match="cannot be recovered"):
        client.open(ledger_id)
    for number in (2, 3):
        world.servers.bookies[number].model.read_only = False
    client.open(ledger_id)
    check_closed(world, client, ledger_id, 39)
    record = world.found(client, ledger_id).record
    assert record.segments[-1].ensemble == world.bookies(0, 3, 2)
    first = record.segments[-1].first_entry_id
    assert set(world.stored(ledger_id, 3)) >= set(range(first, 40))


def test_without_another_bookie_an_ack_quorum_is_enough() -> None:
    world = World(3)
    client = world.client()
    ledger_id = world.ledger(client)
    world.store(ledger_id, range(40), (0,), confirmed=2)
    world.store(ledger_id, range(3), (1, 2))
    world.servers.bookies[1].model.read_only = True
    client.open(ledger_id)
    check_closed(world, client, ledger_id, 39)
    assert len(world.found(client, ledger_id).record.segments) == 1


def test_damage_is_passed_over_and_mended() -> None:
    world = World()
    client = world.client()
    ledger_id = world.ledger(client)
    world.store(ledger_id, range(6), (0, 1, 2))
    for number, entry_id in ((0, 5), (1, 4)):
        entries = world.stored(ledger_id, number)
        entries[entry_id] = entries[entry_id][:-1] + b"?"
    client.open(ledger_id)
    check_closed(world, client, ledger_id, 5)
    for number in range(3):
        world.digest.check(ledger_id, 5, world.stored(ledger_id, number)[5])


@pytest.mark.parametrize("quorums", [Quorums(3, 3, 2), Quorums(3, 2, 2), Quorums(5, 3, 2), Quorums(2, 2, 1)])
@pytest.mark.parametrize("seed", range(10))
def test_two_who_recover_at_once_agree(quorums: Quorums, seed: int) -> None:
    random = Random(seed)
    world = World(6, quorums, seed)
    world.network.conditions.latency = 0.05
    one, other = world.client(), world.client()
    ledger_id = world.ledger(one)
    size = quorums.ensemble
    confirmed = random.randrange(20)
    for entry_id in range(confirmed + 1 + random.randrange(8)):
        write_set = [(entry_id + step) % size for step in range(quorums.write)]
        least = quorums.ack if entry_id <= confirmed else 0
        count = random.randint(least, quorums.write)
        world.store(ledger_id, [entry_id], random.sample(write_set, count), min(confirmed, entry_id - 1))
    tasks = [client.start(client.opening.open(ledger_id, recover=True)) for client in (one, one, other)]
    for _ in range(random.randrange(3)):
        world.loop.run_for(random.random() / 10)
        world.servers.bookies[random.randrange(6)].model.delay = random.random()
    readers = [world.run(task) for task in tasks]
    last = {reader.metadata.last_entry_id for reader in readers}
    assert len(last) == 1
    assert last.pop() >= confirmed
    for client, reader in ((one, readers[0]), (other, readers[2])):
        assert client.entries(reader) == all_of(reader.metadata.last_entry_id)


def test_whoever_moved_the_metadata_on_is_followed() -> None:
    world = World(4)
    one, other = world.client(), world.client()
    ledger_id = world.ledger(one)
    world.store(ledger_id, range(5), (0, 1, 2))
    world.store(ledger_id, range(5), (3,))
    for bookie in world.servers.bookies:
        bookie.model.delay = 0.5
    opening = one.start(one.opening.open(ledger_id, recover=True))
    world.loop.run_for(0.7)
    # AutoRecovery has copied what was on a lost bookie.
    segments = world.found(other, ledger_id).record.segments
    moved = segments[0]._replace(ensemble=world.bookies(0, 3, 2))
    world.change(other, ledger_id, segments=(moved,))
    world.run(opening)
    record = world.found(one, ledger_id).record
    assert record.segments == (moved,)
    assert (record.state, record.last_entry_id) == (LedgerState.CLOSED, 4)


def test_a_ledger_deleted_meanwhile() -> None:
    world = World()
    one, other = world.client(), world.client()
    ledger_id = world.ledger(one)
    world.store(ledger_id, range(5), (0, 1, 2))
    for bookie in world.servers.bookies:
        bookie.model.delay = 0.5
    opening = one.start(one.opening.open(ledger_id, recover=True))
    world.loop.run_for(0.7)
    world.run(other.start(other.records.delete(ledger_id)))
    with pytest.raises(NoSuchLedger):
        world.run(opening)


def test_another_password() -> None:
    world = World()
    client = world.client()
    ledger_id = world.ledger(client)
    world.store(ledger_id, range(5), (0, 1, 2))
    for bookie in world.servers.bookies:
        bookie.model.ledgers[ledger_id].key = KEY[::-1]
    with pytest.raises(WrongPassword):
        client.open(ledger_id)
    world.change(client, ledger_id, password=b"secret")
    requests = [bookie.model.requests for bookie in world.servers.bookies]
    with pytest.raises(WrongPassword):
        client.open(ledger_id, recover=False)
    assert [bookie.model.requests for bookie in world.servers.bookies] == requests


def test_a_store_that_closes_leaves_a_recovery_to_the_next() -> None:
    world = World()
    one, other = world.client(), world.client()
    ledger_id = world.ledger(one)
    world.store(ledger_id, range(5), (0, 1, 2))
    for bookie in world.servers.bookies:
        bookie.model.delay = 0.5
    opening = one.start(one.opening.open(ledger_id, recover=True))
    world.loop.run_for(0.7)
    world.run(one.start(one.opening.close()))
    with pytest.raises(LedgerError):
        world.run(opening)
    assert other.open(ledger_id).metadata.last_entry_id == 4


def test_silence_is_waited_for_no_longer_than_a_question_lasts() -> None:
    world = World()
    client = world.client()
    ledger_id = world.ledger(client)
    world.store(ledger_id, range(5), (0, 1, 2))
    world.servers.bookies[0].model.silent = True
    began = world.loop.time()
    client.open(ledger_id)
    check_closed(world, client, ledger_id, 4)
    assert world.loop.time() - began < 3 * REQUEST_SECONDS
