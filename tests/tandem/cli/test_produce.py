import io
from pathlib import Path
from typing import Any

import pytest

from tandem.cli.produce import (
    LINE_BYTES_MAX,
    AckChoice,
    Choices,
    Tally,
    _chosen_ack,
    _lines,
    _portion_count,
)
from tandem.client import Ack, ConnectionLostError, MessageQueue, SendResult, SendStatus
from tests.tandem.cli.conftest import Tandem

# Those that need a cluster share it.
pytestmark = pytest.mark.xdist_group("one cluster of the command line")

QUEUE = MessageQueue("orders", "broker-a", 0)


class Chunks(io.RawIOBase):
    """A pipe: each read gives the next chunk."""

    def __init__(self, *chunks: bytes) -> None:
        self._chunks = list(chunks)

    def read1(self, _size: int) -> bytes:
        return self._chunks.pop(0) if self._chunks else b""


async def lines_of(*chunks: bytes) -> list[bytes]:
    return [line async for lines in _lines(Chunks(*chunks), Tally()) for line in lines]  # type: ignore[arg-type]  # only read1 is called


@pytest.mark.parametrize(
    ("chunks", "lines"),
    [
        ([], []),
        ([b"one\ntwo\n"], [b"one", b"two"]),
        ([b"one\r\ntwo"], [b"one", b"two"]),
        ([b"\n\none\n\n"], [b"one"]),
        ([b"o", b"n", b"e", b"\n", b"t", b"wo"], [b"one", b"two"]),
        ([b"\xff\x00\n"], [b"\xff\x00"]),
    ],
)
async def test_lines_are_found_however_the_bytes_arrive(
    chunks: list[bytes], lines: list[bytes]
) -> None:
    assert await lines_of(*chunks) == lines


@pytest.mark.parametrize("chunk_bytes", [262_144, 1_000_000, 30_000_000])
@pytest.mark.parametrize("end", [b"", b"\nafter", b"\r\nafter\n"])
async def test_a_line_that_is_too_long_is_counted_and_not_kept(
    chunk_bytes: int, end: bytes
) -> None:
    data = b"before\n" + b"x" * 9_000_000 + end
    chunks = [data[at : at + chunk_bytes] for at in range(0, len(data), chunk_bytes)]
    tally = Tally()
    source: Any = Chunks(*chunks)
    lines = [line async for lines in _lines(source, tally) for line in lines]
    assert lines == [b"before", b"after"] if end else [b"before"]
    assert (tally.failed_count, tally.total_count) == (1, 1)
    assert str(tally) == "NOT_STORED 1"


async def test_the_longest_line_is_a_message() -> None:
    longest = b"x" * LINE_BYTES_MAX
    assert await lines_of(longest + b"\n") == [longest]
    assert await lines_of(longest, b"y\nz") == [b"z"]


def choices(**changes: object) -> Choices:
    defaults: dict[str, object] = {
        "topic": "orders",
        "key": "",
        "tags": "",
        "queue_id": None,
        "ack": AckChoice.REPLICATED,
        "batch": 1,
        "in_flight": 256,
        "rate_per_second": None,
    }
    return Choices(**{**defaults, **changes})  # type: ignore[arg-type]  # defaults of a test


@pytest.mark.parametrize(
    ("changes", "count"),
    [
        ({}, 256),
        ({"batch": 64}, 64),
        ({"rate_per_second": 1.0}, 1),
        ({"rate_per_second": 1000.0}, 50),
        ({"rate_per_second": 1_000_000.0}, 256),
    ],
)
def test_how_many_go_out_at_once(changes: dict[str, object], count: int) -> None:
    assert _portion_count(choices(**changes)) == count


def test_a_stored_message_is_no_failure_and_its_reason_is_kept() -> None:
    tally = Tally()
    result = SendResult(
        SendStatus.SLAVE_NOT_AVAILABLE, "id", "offset id", QUEUE, 0, "no slave connected"
    )
    tally.take(result, 3)
    assert (tally.failed_count, tally.total_count) == (0, 3)
    assert tally.reasons["SLAVE_NOT_AVAILABLE", "no slave connected"] == 3


def test_failures_are_counted_by_what_is_known_of_their_effect() -> None:
    tally = Tally()
    tally.take(ConnectionLostError("127.0.0.1:1", "gone"), 1)
    tally.take(ConnectionLostError("127.0.0.1:1", "refused", outcome_unknown=False), 2)
    assert tally.failed_count == 3
    assert str(tally) == "NOT_STORED 2, UNKNOWN 1"


@pytest.mark.parametrize(
    ("sync", "ack", "chosen"),
    [
        (None, None, AckChoice.REPLICATED),
        (True, None, AckChoice.REPLICATED),
        (False, None, AckChoice.ASYNC),
        (None, AckChoice.REPLICATED_FLUSHED, AckChoice.REPLICATED_FLUSHED),
    ],
)
def test_async_and_sync_are_short_for_contracts(
    sync: bool | None,  # noqa: FBT001
    ack: AckChoice | None,
    chosen: AckChoice,
) -> None:
    assert _chosen_ack(sync, ack) is chosen


def test_the_command_line_offers_every_contract() -> None:
    assert [choice.value for choice in AckChoice] == [ack.value for ack in Ack]


def test_two_ways_to_say_the_contract_at_once_are_refused(tandem: Tandem) -> None:
    result = tandem("produce", "orders", "--async", "--ack", "replicated")
    assert result.exit_code == 2
    assert "use one of them" in result.stderr


@pytest.mark.fault
def test_lines_of_a_file_are_sent_and_counted(tandem: Tandem, tmp_path: Path) -> None:
    file = tmp_path / "lines.txt"
    file.write_text("".join(f"line {number}\n" for number in range(1000)))
    result = tandem("produce", "file-topic", str(file), "--key", "k", "--tags", "t")
    assert result.exit_code == 0
    assert "SEND_OK" in result.stdout
    assert "1,000" in result.stdout
    read = tandem("consume", "file-topic", "--tags", "t")
    assert sorted(read.stdout.splitlines()) == sorted(file.read_text().splitlines())


@pytest.mark.fault
@pytest.mark.parametrize("options", [["--async"], ["--batch", "3"], ["--rate", "100000"]])
def test_standard_input_is_sent_in_order_to_one_queue(tandem: Tandem, options: list[str]) -> None:
    topic = f"stdin{options[0]}"
    lines = [f"line {number}" for number in range(10)]
    result = tandem("produce", topic, "--queue", "1", *options, input="\n".join(lines))
    assert result.exit_code == 0
    assert tandem("consume", topic).stdout.splitlines() == lines


@pytest.mark.fault
def test_refused_messages_are_told_with_their_reason_and_exit_status_1(tandem: Tandem) -> None:
    result = tandem("produce", "big-topic", input="x" * 70_000)
    assert result.exit_code == 1
    assert "NOT_STORED" in result.stdout


def test_a_file_that_is_not_there_is_a_usage_error(tandem: Tandem) -> None:
    result = tandem("produce", "orders", "/no/such/file")
    assert result.exit_code == 2
    assert "No such file" in result.stderr


@pytest.mark.fault
def test_nothing_to_send_is_said(tandem: Tandem) -> None:
    result = tandem("produce", "orders", input="\n\n")
    assert (result.exit_code, result.stdout) == (0, "nothing was sent\n")
