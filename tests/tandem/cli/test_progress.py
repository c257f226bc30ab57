import sys

import pytest
import trio
from trio.testing import MockClock

from tandem.cli import progress
from tandem.cli.progress import _lines, run_blocking, run_with_progress, working
from tandem.client.errors import RouteCause, RouteNotFoundError


async def test_what_is_over_soon_needs_no_words(
    autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]
) -> None:
    async with working("asking"):
        await trio.sleep(1.9)
    assert capsys.readouterr() == ("", "")


async def test_in_a_pipe_there_is_a_line_every_few_seconds(
    autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]
) -> None:
    async with working("asking") as news:
        await trio.sleep(3)
        news("2 of 3\x1b[2J")
        await trio.sleep(8)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == ["asking, 2 s", "asking: 2 of 3\\x1b[2J, 7 s"]


async def test_on_a_terminal_there_is_one_line_that_moves(
    autojump_clock: MockClock,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(progress, "is_for_people", lambda _: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    async with working("asking"):
        await trio.sleep(4)
    out, err = capsys.readouterr()
    assert out == ""
    assert "asking" in err


def test_the_result_of_a_command_comes_back_and_so_does_its_error() -> None:
    async def answer(number: int) -> int:
        return number

    async def fail() -> None:
        raise RouteNotFoundError("orders", RouteCause.NO_NAME_SERVER, "nobody answers")

    assert run_with_progress("asking", answer, 42) == 42
    assert run_blocking("counting", len, "four") == 4
    with pytest.raises(RouteNotFoundError):
        run_with_progress("asking", fail)


def test_bytes_are_counted_in_lines_where_there_is_no_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    times = iter([0.0, 1.0, 2.0, 2.0, 6.9, 7.0, 7.0])
    say = _lines("verify", lambda: next(times))
    for _ in range(4):
        say(1024, 2048)
    assert capsys.readouterr().err == "verify: 1.0 KiB of 2.0 KiB\n" * 2
    assert sys.stderr is not None
