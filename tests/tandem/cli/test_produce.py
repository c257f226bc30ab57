import io
import json
import re
import shlex
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tandem.cli.command_line import app
from tandem.cli.output import CommandError
from tandem.cli.produce import (
    Choices,
    _chosen_ack,
    batches,
    portion_count,
    portions,
    read_lines,
)
from tandem.cli.produce_options import AckChoice, InputFormat
from tandem.cli.produce_results import Tally
from tandem.client import BlockingPullConsumer
from tandem.testing import RunningCluster
from tandem.wire.message import Message
from tests.support.processes import ENVIRONMENT, TANDEM, end_of, started, wait_output
from tests.tandem.cli.conftest import Tandem

# Those that need a cluster share it.
pytestmark = pytest.mark.xdist_group("one cluster of the command line")


class Chunks(io.RawIOBase):
    """A pipe: each read gives the next chunk."""

    def __init__(self, *chunks: bytes) -> None:
        self._chunks = list(chunks)

    def read1(self, _size: int) -> bytes:
        return self._chunks.pop(0) if self._chunks else b""


async def test_lines_are_read_as_they_come_and_those_too_long_are_counted() -> None:
    long = b"x" * 5_000_000
    source: Any = Chunks(b"one\ntw", b"o\n\n", long, b"\n", b"last")
    tally = Tally()
    read = [each async for lines in read_lines(source, InputFormat.TEXT, tally) for each in lines]
    assert read == [(1, b"one"), (2, b"two"), (5, b"last")]
    assert (tally.failed_count, str(tally)) == (1, "NOT_STORED 1")
    source = Chunks(b'{"body": "', long, b'"}')
    tally = Tally()
    read = [each async for lines in read_lines(source, InputFormat.JSONL, tally) for each in lines]
    assert len(read) == 1
    assert tally.failed_count == 0


def choices(**changes: object) -> Choices:
    return Choices(**changes)  # type: ignore[arg-type]  # of a test


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
    assert portion_count(choices(**changes)) == count


def test_what_came_before_a_bad_line_is_sent() -> None:
    def messages() -> Iterator[Message]:
        yield from (Message("t", b"%d" % number) for number in range(5))
        raise CommandError("line 6: no")

    seen: list[int] = []
    with pytest.raises(CommandError):
        seen.extend(len(portion) for portion in portions(messages(), 3))
    assert seen == [3, 2]


def test_a_request_has_messages_of_one_topic_and_those_with_a_delay_alone() -> None:
    def message(topic: str, **changes: int) -> Message:
        return Message(topic, b"x", **changes)  # type: ignore[arg-type]  # a delay

    sent = [message("a"), message("a"), message("b"), message("b", delay_ms=5), message("b")]
    assert [len(batch) for batch in batches(sent)] == [2, 1, 1, 1]


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


@pytest.mark.fault
def test_everything_about_a_message_can_be_said(tandem: Tandem) -> None:
    options = ["--body", "hello", "--key", "a", "--key", "b", "--tags", "t", "--property", "c=d=e"]
    result = tandem("produce", "one-topic", *options, "--format", "jsonl")
    sent = json.loads(result.stdout)
    assert (sent["status"], sent["topic"], sent["queue_offset"]) == ("SEND_OK", "one-topic", 0)
    assert "1 message in" in result.stderr
    record = json.loads(tandem("consume", "one-topic", "--format", "jsonl").stdout)
    assert (record["body"], record["keys"], record["tags"]) == ("hello", ["a", "b"], "t")
    assert record["properties"]["c"] == "d=e"
    assert record["msg_id"] == sent["msg_id"]


@pytest.mark.fault
def test_a_message_is_sent_many_times_and_by_a_key_to_one_queue(tandem: Tandem) -> None:
    options = ["--body", "hello", "--count", "30", "--sharding-key", "user 1", "--format", "json"]
    sent = json.loads(tandem("produce", "sharded-topic", *options).stdout)
    assert len(sent) == 30
    assert len({each["queue_id"] for each in sent}) == 1
    assert [each["queue_offset"] for each in sent] == list(range(30))


@pytest.mark.fault
def test_a_message_of_a_priority_goes_to_its_queue(tandem: Tandem) -> None:
    tandem("topic", "create", "urgent-topic", "--queues", "4", "--attribute", KIND)
    options = ["--body", "hello", "--count", "5", "--priority", "2", "--format", "json"]
    sent = json.loads(tandem("produce", "urgent-topic", *options).stdout)
    assert [each["queue_id"] for each in sent] == [2] * 5
    records = tandem("consume", "urgent-topic", "--format", "jsonl").stdout
    assert json.loads(records.splitlines()[0])["properties"]["_SYS_MSG_PRIORITY_"] == "2"
    copied = tandem(
        "produce", "urgent-topic", "--input-format", "jsonl", "--format", "json", input=records
    )
    assert [each["queue_id"] for each in json.loads(copied.stdout)] == [2] * 5


@pytest.mark.fault
def test_results_of_a_batch_are_those_of_its_messages(tandem: Tandem) -> None:
    lines = "one\ntwo\nthree\n"
    result = tandem("produce", "batch-topic", "--batch", "3", "--format", "text", input=lines)
    rows = [line.split("\t") for line in result.stdout.splitlines()]
    assert [row[4] for row in rows] == ["0", "1", "2"]
    assert len({row[5] for row in rows}) == 3


KIND = "message.type=PRIORITY"
RECORDS = """
{"topic": "records-topic", "keys": ["x", "y"], "properties": {"n": "1"}, "body": "one"}
{"topic": "records-topic", "kee": "z", "body": "two"}
{"topic": "records-topic", "body_base64": "//4="}
"""


@pytest.mark.fault
def test_records_are_sent_and_a_bad_one_ends_it_or_is_left_out(tandem: Tandem) -> None:
    line = ["produce", "-", "--input-format", "jsonl"]
    with pytest.raises(CommandError, match=r"line 3: .*kee"):
        tandem(*line, input=RECORDS)
    assert len(tandem("consume", "records-topic").stdout.splitlines()) == 1
    skipped = tandem(*line, "--on-error", "skip", input=RECORDS)
    assert skipped.exit_code == 1
    assert "line 3: " in skipped.stderr
    assert "NOT_STORED 1, SEND_OK 2" in skipped.stdout
    assert len(tandem("consume", "records-topic", "--format", "%i").stdout.splitlines()) == 3


@pytest.mark.fault
def test_a_topic_is_copied_through_a_pipe(tandem: Tandem) -> None:
    first = ["--body", "hello", "--key", "k", "--property", "a=b"]
    tandem("produce", "from-topic", *first)
    read = tandem("consume", "from-topic", "--format", "jsonl").stdout
    assert tandem("produce", "to-topic", "--input-format", "jsonl", input=read).exit_code == 0
    (before, after) = (
        json.loads(tandem("consume", topic, "--format", "jsonl").stdout)
        for topic in ("from-topic", "to-topic")
    )
    assert (after["body"], after["keys"]) == ("hello", ["k"])
    assert after["properties"]["a"] == "b"
    assert after["msg_id"] != before["msg_id"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--property", "foo"], "give NAME=VALUE"),
        (["--delay", "soon"], "is no duration; give one as 500ms"),
        (["--count", "5"], "is for --body"),
        (["--body", "x", "file"], "takes the place of FILE"),
        (["--body", "x", "--input-format", "jsonl"], "leave out --input-format"),
        (["--batch", "2", "--delay", "5s"], "cannot be of messages with a delay"),
        (["--batch", "2", "--sharding-key", "k"], "with a sharding key"),
        (["--queue", "1", "--sharding-key", "k"], "is chosen by --sharding-key"),
        (["--delay", "5s", "--delay-level", "3"], "has only one of"),
        (["--priority", "-1"], "'--priority'"),
        (["--priority", "1", "--delay", "5s"], "give it no delay"),
        (["--priority", "1", "--sharding-key", "k"], "give it no priority"),
        (["--priority", "1", "--batch", "2"], "with a priority"),
        (["--priority", "1", "--queue", "1"], "is chosen by --priority"),
        (["--key", "a b"], "must not hold a blank"),
        (["--property", "a=\x01"], "cannot be stored"),
    ],
)
def test_options_that_make_no_sense_are_refused_before_anything_is_sent(
    options: list[str], words: str
) -> None:
    line = ["produce", "orders", "-n", "127.0.0.1:1", *options]
    result = CliRunner().invoke(app, line, prog_name="tandem", input="x")
    status = getattr(result.exception, "exit_status", result.exit_code)
    assert status == 2
    assert words in f"{result.stderr} {result.exception}"


def stored_count(cluster: RunningCluster, topic: str) -> int:
    """How many messages of a topic there are; it is waited for until all queues have them."""
    with BlockingPullConsumer(cluster.name_servers, group="counting") as consumer:
        queues = consumer.fetch_message_queues(topic)
        return sum(consumer.max_offset(queue) for queue in queues)


@pytest.mark.fault
@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["--batch", "20"]])
def test_what_was_answered_before_ctrl_c_is_counted_and_the_rest_is_in_doubt(
    cluster: RunningCluster, options: list[str]
) -> None:
    topic = f"stopped{len(options)}"
    servers = [part for server in cluster.name_servers for part in ("-n", server)]
    command = [*TANDEM, "produce", topic, "--body", "x", "--count", "100000000", *options, *servers]
    with started([*command, "--format", "text"]) as process:
        wait_output(process, "SEND_OK")
        printed = end_of(process, signal.SIGINT)
    assert process.returncode == 130, printed
    (counted,) = re.findall(r"SEND_OK ([\d,]+)$", printed, re.MULTILINE)
    in_doubt = re.findall(r"([\d,]+) in flight, outcome unknown", printed)
    acknowledged, unknown = (int(text.replace(",", "")) for text in (counted, *(in_doubt or ["0"])))
    assert acknowledged <= stored_count(cluster, topic) <= acknowledged + unknown
    assert unknown <= 256


@pytest.mark.fault
@pytest.mark.slow
def test_what_was_answered_is_counted_also_if_nobody_reads_the_results(
    cluster: RunningCluster,
) -> None:
    servers = " ".join(f"-n {server}" for server in cluster.name_servers)
    tandem_line = " ".join(map(shlex.quote, TANDEM))
    line = f"{tandem_line} produce unread --body x --count 1000 --format text {servers} | head -1"
    done = subprocess.run(
        ["bash", "-c", line], env=ENVIRONMENT, capture_output=True, text=True, check=True
    )
    (counted,) = re.findall(r"SEND_OK ([\d,]+)", done.stderr)
    assert int(counted.replace(",", "")) == stored_count(cluster, "unread")
