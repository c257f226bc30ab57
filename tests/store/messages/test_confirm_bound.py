from typing import Any

from node.simulated.disk import SimulatedDisk
from store import MessageStore
from store.results import Arrival
from tests.store.store_world import a_batch, a_message, copy_log, open_store, put, put_many
from tests.support.listening import listen, told_by


def a_store(*, is_slave: bool = False, **settings: Any) -> MessageStore:  # noqa: ANN401
    return open_store(SimulatedDisk(), confirm_bounds_reads=True, is_slave=is_slave, **settings)


def test_an_arrival_is_told_when_its_record_is_confirmed_whole() -> None:
    with a_store() as store:
        told = told_by(store)
        first = put(store, a_message(0))
        second = put(store, a_message(0, "TopicB"))
        store.confirm(first - 1)
        assert told == []
        store.confirm(first)
        assert told == [("TopicA", 0, 1, 0)]
        store.confirm(second)
        assert told[1:] == [("TopicB", 0, 1, 0)]


def test_one_step_tells_all_arrivals_below_it_in_the_order_of_the_log() -> None:
    with a_store() as store:
        told = told_by(store)
        put_many(store, 6)
        store.confirm(store.max_physical_offset)
        places = [("TopicA", 0, 1), ("TopicA", 1, 1), ("TopicB", 0, 1)]
        places += [(topic, queue_id, 2) for topic, queue_id, _ in places]
        assert [facts[:3] for facts in told] == places


def test_what_is_confirmed_before_it_arrives_is_told_at_once() -> None:
    """A slave's log is confirmed before the dispatch has come to it."""
    with a_store() as master, a_store(is_slave=True) as slave:
        put_many(master, 3)
        copy_log(master, slave)
        told = told_by(slave)
        slave.confirm(slave.max_physical_offset)
        assert told == []
        slave.reput_service.dispatch_some()
        assert [facts[:3] for facts in told] == [
            ("TopicA", 0, 1),
            ("TopicA", 1, 1),
            ("TopicB", 0, 1),
        ]


def test_records_that_a_slave_dispatches_together_wait_each_for_its_own_queue() -> None:
    with a_store() as master, a_store(is_slave=True) as slave:
        ends = [put(master, a_message(0, "TopicB"))]
        ends += [put(master, a_message(n)) for n in range(30)]
        ends += [put(master, a_message(1, "TopicB"))]
        copy_log(master, slave)
        told = told_by(slave)
        slave.reput_service.dispatch_some()
        slave.confirm(ends[-2])
        assert [facts[:3] for facts in told] == [("TopicA", 0, 30)]
        slave.confirm(ends[-1])
        assert [facts[:3] for facts in told[1:]] == [("TopicB", 0, 2)]


def test_a_batch_is_told_when_all_of_it_is_confirmed() -> None:
    with a_store() as store:
        told = told_by(store)
        end = put(store, a_batch(range(4)))
        store.confirm(end - 1)
        assert told == []
        store.confirm(end)
        assert told == [("TopicA", 0, 4, None)]


def test_a_reader_that_puts_from_within_the_call_gets_its_own_message_later() -> None:
    with a_store() as store:
        told: list[int] = []

        def answer(arrivals: list[Arrival]) -> None:
            for _, _, _, max_offset, _ in arrivals:
                told.append(max_offset)
                if max_offset < 3:
                    store.confirm(put(store, a_message(max_offset)))

        listen(store, answer)
        store.confirm(put(store, a_message(0)))
        assert told == [1, 2, 3]


def test_several_of_one_round_wait_each_for_its_own_end() -> None:
    with a_store() as store:
        told = told_by(store)
        ends = [store.puts.put_message(a_message(number)).end_offset for number in range(3)]
        store.announce()
        for count, end in enumerate(ends):
            assert len(told) == count
            store.confirm(end - 1)
            assert len(told) == count
            store.confirm(end)
        assert [facts[2] for facts in told] == [1, 2, 3]


def test_what_is_confirmed_within_its_own_round_is_told_at_the_end_of_it() -> None:
    with a_store() as store:
        told = told_by(store)
        store.confirm(store.puts.put_message(a_message(0)).end_offset)
        assert told == []
        store.announce()
        assert told == [("TopicA", 0, 1, 0)]
