"""What it says and when it ends. With Spark: a long drill in tests/faults/test_drill_fenced.py."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from tandem.drill import stream_program
from tandem.drill.stream_program import FINISH, StreamNews, StreamOrder


class Query:
    """A stream that has done two batches, the second of which was reported twice."""

    def __init__(self, *, fails_after: int = 99) -> None:
        self.looks = 0
        self.calls: list[str] = []
        self._fails_after = fails_after

    @property
    def isActive(self) -> bool:  # noqa: N802 - Spark's name
        return self.looks < self._fails_after

    @property
    def lastProgress(self) -> Any:  # noqa: ANN401, N802 - Spark's
        self.looks += 1
        return None if self.looks == 1 else SimpleNamespace(batchId=min(self.looks // 2 - 1, 1))

    def processAllAvailable(self) -> None:  # noqa: N802 - Spark's name
        self.calls.append("all")

    def stop(self) -> None:
        self.calls.append("stop")

    def awaitTermination(self) -> None:  # noqa: N802 - Spark's name
        raise ArithmeticError("what ended it")


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[StreamNews]:
    found: list[StreamNews] = []
    monkeypatch.setattr(stream_program, "say", found.append)
    monkeypatch.setattr(stream_program, "LOOK_SECONDS", 0.01)
    return found


@contextmanager
def asked(words: bytes | None) -> Iterator[None]:
    """Have these words on standard input, and then its end; None: neither."""
    read, write = os.pipe()
    os.write(write, words or b"")
    with (
        os.fdopen(read) as stdin,
        os.fdopen(write, "wb") as rest,
        pytest.MonkeyPatch.context() as m,
    ):
        if words is not None:
            rest.close()
        m.setattr(sys, "stdin", stdin)
        yield


def test_asked_to_finish_it_reads_what_there_is_and_stops(
    said: list[StreamNews],
) -> None:
    query: Any = Query()
    with asked(FINISH):
        stream_program.follow(query)
    assert query.calls == ["all", "stop"]
    assert said[-1] == StreamNews(state="done", batches=0)


def test_it_says_each_batch_once_and_raises_what_ends_the_query(
    said: list[StreamNews],
) -> None:
    query: Any = Query(fails_after=6)
    with asked(None), pytest.raises(ArithmeticError, match="what ended it"):
        stream_program.follow(query)
    assert said == [StreamNews(state="running", batches=number) for number in (1, 2)]


def test_the_end_of_standard_input_ends_it_at_once(
    said: list[StreamNews], monkeypatch: pytest.MonkeyPatch
) -> None:
    def ended(status: int) -> None:
        raise SystemExit(status)

    monkeypatch.setattr(os, "_exit", ended)
    query: Any = Query()
    with asked(b""), pytest.raises(SystemExit):
        stream_program.follow(query)
    assert (query.calls, said) == ([], [])


def test_what_it_says_is_one_line(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    stream_program.say(StreamNews(state="failed", reason="line\nline"))
    out = capfdbinary.readouterr().out
    assert out.count(b"\n") == 1
    assert msgspec.json.decode(out) == {"state": "failed", "reason": "line\nline"}


def test_the_stream_begins_at_the_first_message_of_the_topic() -> None:
    steps: list[tuple[str, Any]] = []

    class Chain:
        def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever Spark has
            def step(*arguments: Any, **named: Any) -> "Chain":  # noqa: ANN401
                steps.append((name, arguments or named))
                return self

            return self if name in ("readStream", "writeStream") else step

    order = StreamOrder(
        name_servers="127.0.0.1:9876",
        topic="orders",
        output="out",
        checkpoint="check",
        scratch="scratch",
        options={"maxOffsetsPerTrigger": "10"},
    )
    session: Any = Chain()
    stream_program.start_query(session, order)
    assert dict(steps)["options"] == {
        "nameServers": "127.0.0.1:9876",
        "subscribe": "orders",
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "10",
    }
    assert ("option", ("checkpointLocation", "check")) in steps
