import pytest

from node.simulated.disk import SimulatedDisk
from store.machine.errors import RecordDamagedError
from store.transaction.half_queue import half_in_queue, messages_from
from tandem.wire.system_topics import RMQ_SYS_TRANS_HALF_TOPIC
from tests.store.store_world import a_message, heal, note_damage, number_of, open_store, put

HALF = RMQ_SYS_TRANS_HALF_TOPIC


def test_messages_come_up_to_one_that_is_damaged() -> None:
    with open_store(SimulatedDisk()) as store:
        for number in range(70):
            put(store, a_message(number, HALF))
        note_damage(store, HALF, 40)
        read: list[int] = []
        with pytest.raises(RecordDamagedError):
            read.extend(number_of(half) for half in messages_from(store.whole_log, HALF, 3))
        heal(store)
        halves = messages_from(store.whole_log, HALF, 3)
        assert [number_of(half) for half in halves] == [*range(3, 70)]


def test_a_damaged_half_is_not_taken_for_one_that_is_gone() -> None:
    with open_store(SimulatedDisk()) as store:
        put(store, a_message(0, HALF))
        note_damage(store, HALF, 0)
        with pytest.raises(RecordDamagedError):
            half_in_queue(store.whole_log, 0)
        assert half_in_queue(store.whole_log, 1) is None
