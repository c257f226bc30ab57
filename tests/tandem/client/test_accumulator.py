"""Which sends go at once, and what goes together."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.client.accumulator import Gathered, Lane, Lanes, end_all
from tandem.client.sending import NO_OPTIONS
from tandem.wire.message import Message

BATCH_MAX_BYTES = 1000


def a_lane(*, requests_max: int = 2, is_ordered: bool = False) -> Lane:
    return Lane("T", NO_OPTIONS, requests_max, is_ordered=is_ordered)


def gathered(entry: bytes = b"x" * 100, name: str = "k", lane: Lane | None = None) -> Gathered:
    return Gathered(lane or a_lane(), Message("T", b""), name, entry, len(entry))


def names(messages: list[Gathered]) -> list[str]:
    return [each.unique_key for each in messages]


def test_the_first_sends_go_at_once_and_the_next_ones_wait_for_a_place() -> None:
    lane = a_lane(requests_max=2)
    assert [lane.enter() for _ in range(4)] == [True, True, False, False]
    lane.answered(1)
    assert lane.leave()
    assert lane.enter()


def test_nobody_overtakes_what_is_gathered() -> None:
    lane = a_lane(requests_max=2)
    assert lane.enter()
    lane.gather(gathered())
    assert not lane.enter()


def test_what_was_gathered_takes_the_place_of_the_request_that_ended() -> None:
    lane = a_lane(requests_max=1)
    assert lane.enter()
    for name in "abc":
        lane.gather(gathered(name=name))
    lane.answered(1)
    assert not lane.leave()
    assert lane.requests == 1
    assert names(lane.take(BATCH_MAX_BYTES)) == ["a", "b", "c"]
    lane.answered(3)
    assert lane.leave()
    assert lane.is_idle


def test_a_batch_has_as_many_bytes_as_are_allowed_and_at_least_one_message() -> None:
    lane = a_lane(requests_max=1)
    for name, size in (("a", 600), ("b", 400), ("c", 1), ("d", 5000), ("e", 1)):
        lane.gather(gathered(b"x" * size, name))
    batches = []
    while taken := lane.take(BATCH_MAX_BYTES):
        batches.append(names(taken))
    assert batches == [["a", "b"], ["c"], ["d"], ["e"]]


def test_many_messages_are_shared_among_all_places() -> None:
    lane = a_lane(requests_max=4)
    assert all(lane.enter() for _ in range(4))
    for _ in range(96):
        lane.gather(gathered(b"x"))
    sizes = []
    for _ in range(4):
        lane.answered(1)
        assert not lane.leave()
        sizes.append(len(lane.take(BATCH_MAX_BYTES)))
    assert sum(sizes) == 96
    assert max(sizes) <= 25


def test_one_that_fits_no_batch_goes_alone_in_its_turn() -> None:
    lane = a_lane(is_ordered=True)
    for name, entry in (("a", b"x"), ("b", b"x"), ("large", b""), ("c", b"x")):
        lane.gather(gathered(entry, name))
    assert [names(lane.take(BATCH_MAX_BYTES)) for _ in range(3)] == [["a", "b"], ["large"], ["c"]]


def test_an_entry_that_is_not_made_yet_counts_with_the_bytes_it_will_have() -> None:
    lane = a_lane(requests_max=1)
    for name, size in (("a", 600), ("b", 400), ("c", 1)):
        lane.gather(Gathered(lane, Message("T", b""), name, b"", size))
    assert [names(lane.take(BATCH_MAX_BYTES)) for _ in range(2)] == [["a", "b"], ["c"]]


def test_messages_in_order_have_one_request_under_way() -> None:
    lane = a_lane(requests_max=4, is_ordered=True)
    assert lane.enter()
    assert not lane.enter()


def test_a_message_that_nobody_waits_for_never_leaves() -> None:
    lane = a_lane()
    first, second = gathered(name="a", lane=lane), gathered(name="b", lane=lane)
    told: list[object] = []
    for each in (first, second):
        each.wake = told.append
        lane.gather(each)
    first.withdraw()
    assert names(lane.take(BATCH_MAX_BYTES)) == ["b"]
    second.withdraw()
    end_all([second], ["the outcome"])
    assert told == []


def test_an_outcome_is_handed_over_once() -> None:
    told: list[object] = []
    one = gathered()
    one.wake = told.append
    end_all([one], ["stored"])
    end_all([one], ["lost"])
    assert told == ["stored"]


def test_lanes_are_forgotten_when_nobody_uses_them() -> None:
    lanes = Lanes(requests_max=1)
    lane = lanes.lane("T", NO_OPTIONS)
    assert lanes.lane("T", NO_OPTIONS) is lanes.find("T") is lane
    assert lane.enter()
    lanes.drop_if_idle(lane)
    assert lanes.all() == [lane]
    lane.answered(1)
    lane.leave()
    lanes.drop_if_idle(lane)
    assert lanes.all() == []
    assert lanes.find("T") is None


@given(st.lists(st.sampled_from(["send", "large", "end"]), max_size=60), st.integers(1, 4))
def test_all_leave_once_and_in_order_and_never_with_too_many_requests(
    steps: list[str], requests_max: int
) -> None:
    lane = a_lane(requests_max=requests_max)
    under_way: list[list[str]] = []
    left: list[str] = []

    def end() -> None:
        lane.answered(len(under_way.pop(0)))
        if not lane.leave():
            taken = names(lane.take(BATCH_MAX_BYTES))
            assert taken
            under_way.append(taken)
            left.extend(taken)

    sent = []
    for number, step in enumerate(steps):
        if step == "end":
            if under_way:
                end()
            continue
        name = str(number)
        sent.append(name)
        if lane.enter():
            under_way.append([name])
            left.append(name)
        else:
            lane.gather(gathered(b"x" * (400 if step == "large" else 30), name))
        assert len(under_way) == lane.requests <= requests_max
    while under_way:
        end()
    assert left == sent
    assert lane.is_idle


@pytest.mark.parametrize("size", [1, 2000])
def test_an_empty_lane_gives_nothing(size: int) -> None:
    assert a_lane().take(size) == []
