"""The window against a broker that answers in any order, gives less, and loses its connection."""

import random

import pytest

from tandem.client.results import MessageQueue
from tandem.spark.live.pull_window import STEP_MAX, Piece, Pull, PullWindow
from tandem.spark.live.ranges import QueueRange


def a_range(number: int, start: int, end: int) -> QueueRange:
    return QueueRange(MessageQueue("t", "a", number), start, end)


def body(start: int, end: int) -> bytes:
    return f"[{start},{end})".encode()


def answered_in_full(window: PullWindow) -> list[Piece]:
    pieces = []
    while not window.is_done:
        for pull in window.next_pulls():
            window.found(pull, pull.end, body(pull.start, pull.end))
        pieces += window.ready()
    return pieces


def test_pulls_are_sent_ahead_of_their_answers() -> None:
    window = PullWindow([a_range(0, 10, 100), a_range(1, 0, 5)], in_flight_max=3)
    assert window.next_pulls() == [Pull(0, 10, 42), Pull(0, 42, 74), Pull(0, 74, 100)]
    assert window.next_pulls() == []
    assert window.in_flight == 3


def test_answers_are_handed_on_in_order() -> None:
    window = PullWindow([a_range(0, 0, 96)])
    first, second, third = window.next_pulls()
    window.found(third, 96, b"3")
    window.found(second, 64, b"2")
    assert window.ready() == []
    window.found(first, 32, b"1")
    assert [piece.body for piece in window.ready()] == [b"1", b"2", b"3"]
    assert window.is_done


def test_what_is_left_of_a_short_answer_is_asked_for_first() -> None:
    window = PullWindow([a_range(0, 0, 1000)], in_flight_max=2)
    first, _ = window.next_pulls()
    window.found(first, 8, b"1")
    window.ready()
    assert window.next_pulls() == [Pull(0, 8, 32)]


def counts_asked_for(window: PullWindow, gives: int, pulls: int) -> list[int]:
    """Answer so many pulls with at most `gives` messages; return how many each asked for."""
    counts = []
    for _ in range(pulls):
        (pull,) = window.next_pulls()
        counts.append(pull.count)
        window.found(pull, min(pull.end, pull.start + gives), b"x")
        window.ready()
    return counts


def test_after_short_answers_pulls_are_as_short_and_grow_again() -> None:
    window = PullWindow([a_range(0, 0, 100_000)], in_flight_max=1)
    assert counts_asked_for(window, 8, 8) == [32, 24, 16, 8, 8, 8, 8, 8]
    assert max(counts_asked_for(window, 8, 100)) == 16
    assert counts_asked_for(window, 32, 100)[-1] == STEP_MAX


def test_one_short_answer_changes_nothing() -> None:
    window = PullWindow([a_range(0, 0, 100_000)], in_flight_max=1)
    assert counts_asked_for(window, 3, 1) == [32]
    assert counts_asked_for(window, 32, 3) == [29, 32, 32]


def test_a_batch_that_comes_whole_does_not_move_the_next_range() -> None:
    window = PullWindow([a_range(0, 0, 10), a_range(1, 0, 10)])
    pulls = window.next_pulls()
    for pull in pulls:
        window.found(pull, pull.end + 5, b"x")
    assert [(piece.place, piece.start, piece.end) for piece in window.ready()] == [
        (0, 0, 10),
        (1, 0, 10),
    ]


def test_a_hole_is_a_piece_without_a_body() -> None:
    window = PullWindow([a_range(0, 0, 10)])
    (pull,) = window.next_pulls()
    window.passed(pull, 4)
    (rest,) = window.next_pulls()
    window.found(rest, 10, b"x")
    assert [(piece.start, piece.end, piece.body) for piece in window.ready()] == [
        (0, 4, b""),
        (4, 10, b"x"),
    ]


def test_nothing_to_read_is_done_at_once() -> None:
    assert PullWindow([]).is_done
    assert PullWindow([a_range(0, 3, 3), a_range(1, 9, 9)]).is_done


def test_the_range_that_is_read_now_is_known_to_the_end() -> None:
    ranges = [a_range(0, 3, 3), a_range(1, 0, 40)]
    window = PullWindow(ranges)
    assert window.unread == ranges[1]
    answered_in_full(window)
    assert window.unread == ranges[1]


@pytest.mark.parametrize("seed", range(300))
def test_whatever_happens_every_offset_is_handed_on_once_and_in_order(seed: int) -> None:
    chance = random.Random(seed)
    ranges = [
        a_range(number, start, start + chance.choice((0, 1, 31, 32, 33, 500)))
        for number in range(chance.randrange(1, 5))
        for start in (chance.randrange(100),)
    ]
    window = PullWindow(ranges, in_flight_max=chance.choice((1, 2, 8, 32)))
    in_flight: list[Pull] = []
    pieces: list[Piece] = []
    for _ in range(100_000):
        if window.is_done:
            break
        in_flight += window.next_pulls()
        assert len(in_flight) == window.in_flight
        pull = in_flight.pop(chance.randrange(len(in_flight)))
        match chance.randrange(10):
            case 0:
                window.again(pull)
            case 1:
                for lost in (*in_flight, pull):
                    window.again(lost)
                in_flight.clear()
            case 2:
                window.passed(pull, chance.randrange(pull.start, pull.end) + 1)
            case 3 | 4:
                end = chance.randrange(pull.start, pull.end) + 1
                window.found(pull, end, body(pull.start, end))
            case _:
                window.found(pull, pull.end, body(pull.start, pull.end))
        pieces += window.ready()
    assert window.is_done
    for place, each in enumerate(ranges):
        got = [(piece.start, piece.end) for piece in pieces if piece.place == place]
        assert [start for start, _ in got] == [each.start, *(end for _, end in got)][: len(got)]
        assert (got[-1][1] if got else each.start) == each.end
    assert [piece.place for piece in pieces] == sorted(piece.place for piece in pieces)


def test_what_is_left_of_some_ranges_can_be_taken_out() -> None:
    window = PullWindow([a_range(0, 0, 100), a_range(1, 0, 40), a_range(2, 0, 50)], in_flight_max=2)
    for pull in window.next_pulls():
        window.again(pull)
    for pull in window.pulls_of({0, 2}):
        window.passed(pull, pull.end)
    assert [(piece.place, piece.end, piece.body) for piece in window.ready()] == [
        (0, 32, b""),
        (0, 64, b""),
        (0, 100, b""),
    ]
    assert window.next_pulls() == [Pull(1, 0, 32), Pull(1, 32, 40)]
    assert window.pulls_of({2}) == [Pull(2, 0, 50)]
    assert window.in_flight == 3
