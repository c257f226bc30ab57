"""What the journal says of timers, against a list of every message."""

from hypothesis import given
from hypothesis import strategies as st

from store.delayed.timer_place import TimerPlace, WaitingTimers


def test_slots_are_emptied_in_order_of_time_and_messages_in_order_of_the_queue() -> None:
    waiting = WaitingTimers(TimerPlace())
    for offset, slot_ms in enumerate((3000, 1000, 3000, 1000)):
        waiting.enter(offset, slot_ms, cancels=False)
        waiting.looked_at = offset + 1
    assert (waiting.first_ms, waiting.count_at(1000), waiting.count_at(2000)) == (1000, 2, 0)
    found = []
    while waiting.first_ms is not None:
        assert waiting.begin_slot() == []
        while (found_at := waiting.next_in_slot()) is not None:
            found.append(found_at)
            waiting.message_done(found_at)
        waiting.end_slot(1000)
    assert found == [1, 3, 0, 2]
    assert waiting.place == TimerPlace(4, 4, 4000, 0)


def test_the_place_says_what_waits() -> None:
    waiting = WaitingTimers(TimerPlace())
    for offset, slot_ms in enumerate((3000, 1000, 1000)):
        waiting.enter(offset, slot_ms, cancels=False)
        waiting.looked_at = offset + 1
    assert waiting.place == TimerPlace(0, 3, 0, 0)
    waiting.begin_slot()
    waiting.message_done(1)
    assert waiting.place == TimerPlace(0, 3, 1000, 2)
    waiting.message_done(2)
    waiting.end_slot(1000)
    assert waiting.place == TimerPlace(0, 3, 2000, 0)


def test_a_slot_is_begun_again_where_the_last_master_stopped() -> None:
    waiting = WaitingTimers(TimerPlace(0, 3, 1000, 2))
    assert [waiting.was_done(at, 1000, cancels=False) for at in range(4)] == [
        True,
        True,
        False,
        False,
    ]
    assert not waiting.was_done(0, 1000, cancels=True)
    waiting.enter(0, 1000, cancels=True)
    waiting.enter(2, 1000, cancels=False)
    waiting.looked_at = 3
    assert waiting.begin_slot() == [0]
    assert waiting.place == TimerPlace(0, 3, 1000, 2)


@given(
    slots=st.lists(st.integers(1, 6), max_size=30),
    cancelling=st.sets(st.integers(0, 29)),
    steps=st.integers(0, 60),
)
def test_a_message_is_done_or_waits_and_every_node_knows_which(
    slots: list[int], cancelling: set[int], steps: int
) -> None:
    waiting = WaitingTimers(TimerPlace())
    for offset, slot in enumerate(slots):
        waiting.enter(offset, slot * 1000, cancels=offset in cancelling)
        waiting.looked_at = offset + 1
    done: set[int] = set()
    is_begun = False
    for _ in range(steps):
        if waiting.first_ms is None:
            break
        if not is_begun:
            waiting.begin_slot()
            is_begun = True
        elif (found_at := waiting.next_in_slot()) is not None:
            waiting.message_done(found_at)
            done.add(found_at)
        else:
            waiting.end_slot(1000)
            done |= {at for at, slot in enumerate(slots) if slot * 1000 < waiting.slot_ms}
            is_begun = False
    place = waiting.place
    anew = WaitingTimers(place)
    for offset, slot in enumerate(slots):
        was_done = offset < place.first_waiting or anew.was_done(
            offset, slot * 1000, cancels=offset in cancelling
        )
        assert was_done == (offset in done)
