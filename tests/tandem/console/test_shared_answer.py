import pytest
import trio
from trio.testing import MockClock

from tandem.console.shared_answer import SharedAnswer


class Question:
    def __init__(self, seconds: float = 0.1) -> None:
        self.count = 0
        self.seconds = seconds
        self.trouble: Exception | None = None

    async def ask(self) -> int:
        await trio.sleep(self.seconds)
        if self.trouble is not None:
            raise self.trouble
        self.count += 1
        return self.count


async def test_it_is_asked_once_for_all_who_ask_meanwhile(autojump_clock: MockClock) -> None:
    question = Question()
    shared = SharedAnswer(question.ask, 1.0)
    got: list[int] = []

    async def ask() -> None:
        got.append(await shared.fresh())

    async with trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(ask)
    assert got == [1] * 10
    await trio.sleep(2)
    assert await shared.fresh() == 2


async def test_newer_answers_come_at_the_pace_of_the_pause(autojump_clock: MockClock) -> None:
    shared = SharedAnswer(Question().ask, 1.0)
    start = trio.current_time()
    number = 0
    for expected in (1, 2, 3):
        answer, number = await shared.newer_than(number)
        assert answer == number == expected
    assert trio.current_time() - start == pytest.approx(2.1)
    assert (await shared.newer_than(1))[1] == 3, "it is there already"


async def test_another_asks_if_the_one_that_asks_is_cancelled(autojump_clock: MockClock) -> None:
    shared = SharedAnswer(Question(5.0).ask, 1.0)
    got: list[int] = []

    async def ask() -> None:
        got.append((await shared.newer_than(0))[0])

    async with trio.open_nursery() as nursery:
        with trio.move_on_after(1):
            nursery.start_soon(ask)
            await shared.newer_than(0)
    assert got == [1]


async def test_an_error_is_for_the_one_that_asked(autojump_clock: MockClock) -> None:
    question = Question()
    question.trouble = ValueError("no")
    shared = SharedAnswer(question.ask, 1.0)
    with pytest.raises(ValueError, match="no"):
        await shared.fresh()
    question.trouble = None
    assert await shared.fresh() == 1


async def test_an_answer_that_takes_long_is_that_of_all_who_have_waited_for_it(
    autojump_clock: MockClock,
) -> None:
    question = Question(3.0)  # a node hangs
    shared = SharedAnswer(question.ask, 1.0)
    start = trio.current_time()
    async with trio.open_nursery() as nursery:
        for _ in range(16):
            nursery.start_soon(shared.fresh)
    assert question.count == 1
    assert trio.current_time() - start == pytest.approx(3.0)


async def test_who_begins_to_listen_gets_no_answer_of_long_ago(autojump_clock: MockClock) -> None:
    shared = SharedAnswer(Question().ask, 1.0)
    assert await shared.newer_than(0) == (1, 1)
    await trio.sleep(600)
    assert await shared.newer_than(0) == (2, 2)
