from collections.abc import AsyncIterator

import pytest
import trio

from tandem.coordinator import watch
from tandem.coordinator.interface import CoordinatorUnavailableError, Event
from tandem.coordinator.watch import Lines, batches_of
from tests.support.patience import PATIENCE_SECONDS

DELETED = b'{"result":{"events":[{"type":"DELETE","kv":{"key":"L2s=","mod_revision":"%d"}}]}}\n'


async def stream(*chunks: bytes, then_wait: bool = False) -> AsyncIterator[bytes]:
    for chunk in chunks:
        await trio.lowlevel.checkpoint()
        yield chunk
    if then_wait:
        await trio.sleep_forever()


async def lines_of(*chunks: bytes) -> list[bytes]:
    lines = Lines("http://c:1", stream(*chunks))
    found = []
    with pytest.raises(CoordinatorUnavailableError, match="http://c:1 ended the watch"):
        while True:
            found.append(await lines.next())
    await lines.aclose()
    return found


async def test_lines_are_the_same_however_the_stream_is_cut() -> None:
    data = b"first\n\n\nsecond\nhalf"
    whole = await lines_of(data)
    assert whole == [b"first", b"second"]
    assert await lines_of(*(data[at : at + 1] for at in range(len(data)))) == whole


async def test_a_line_without_an_end_is_not_kept_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "LINE_BYTES_MAX", 10)
    lines = Lines("http://c:1", stream(*[b"xxxx"] * 9))
    with pytest.raises(CoordinatorUnavailableError, match="a line without an end"):
        await lines.next()
    await lines.aclose()


async def test_a_caller_who_stops_waiting_loses_no_events() -> None:
    lines = Lines("http://c:1", stream(DELETED % 5, then_wait=True))
    async with batches_of(lines) as batches:
        with trio.move_on_after(0):
            await anext(batches)
        with trio.fail_after(PATIENCE_SECONDS):
            assert await anext(batches) == (Event("/k", None, 5),)
    await lines.aclose()


async def test_a_watch_that_ended_stays_ended() -> None:
    lines = Lines("http://c:1", stream(DELETED % 5, DELETED % 6))
    async with batches_of(lines) as batches:
        assert [event.revision for _ in range(2) for event in await anext(batches)] == [5, 6]
        for _ in range(2):
            with pytest.raises(CoordinatorUnavailableError):
                await anext(batches)
    await lines.aclose()


async def test_an_error_of_the_callers_own_comes_out_as_it_is() -> None:
    lines = Lines("http://c:1", stream(then_wait=True))
    with pytest.raises(ZeroDivisionError):
        async with batches_of(lines):
            raise ZeroDivisionError
    await lines.aclose()
