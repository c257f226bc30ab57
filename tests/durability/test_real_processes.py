"""Real nodes and their coordinator, watched from outside: no answer leaves before its sync.

strace(1) writes down every sync, every rename and every message of a supervisor and its nodes.
"""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import trio

from tandem.client import Ack, Producer, SendStatus
from tandem.wire.message import Message
from tests.durability.system_calls import (
    RECEIPTS,
    RENAMES,
    SENDS,
    SYNCS,
    Call,
    read_calls,
    under_strace,
    why_no_tracing,
)
from tests.faults.real_group import NODES, PATIENT, TOPIC, write_group
from tests.support.patience import ATTEMPT_MS, COUNTED, PATIENCE_MS
from tests.support.processes import TANDEM, end_of, started, wait_output

pytestmark = [pytest.mark.fault, pytest.mark.slow]

KEYS = [f"watched-{number}." for number in range(5)]


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> list[Call]:
    """Of a fenced group: from its start, over five sends that wait for all disks, to its end."""
    if why_not := why_no_tracing():
        pytest.skip(f"system calls cannot be watched here: {why_not}")
    directory = tmp_path_factory.mktemp("watched")
    # Under strace(1) all takes long, and a message that is sent again has two answers.
    spec = write_group(directory, coordinator=PATIENT, **COUNTED)
    output = directory / "calls"
    command = [*TANDEM, "cluster", "up", "--config", str(spec.file)]
    with started(under_strace(command, output)) as process:
        wait_output(process, "stops it")
        trio.run(_send, spec.name_servers)
        end_of(process, signal.SIGTERM)
    return read_calls(output)


async def _send(name_servers: list[str]) -> None:
    async with Producer(
        name_servers,
        "watched",
        ack=Ack.REPLICATED_FLUSHED,
        resend_until_ok=True,
        send_msg_timeout_ms=PATIENCE_MS,
        attempt_timeout_ms=ATTEMPT_MS,
    ) as producer:
        for key in KEYS:
            result = await producer.send(Message(TOPIC, b"body", keys=key))
            assert result.status is SendStatus.SEND_OK


def answers(calls: list[Call], request: str, answer: str) -> Iterator[tuple[Call, Call]]:
    """Yield each request that was received with what was sent on its connection next."""
    for received in calls:
        if received.name not in RECEIPTS or request not in received.text:
            continue
        for sent in calls:
            is_next = sent.begun > received.ended and sent.target == received.target
            if is_next and sent.name in SENDS:
                if answer in sent.text:
                    yield received, sent
                break


def test_a_flushed_message_is_answered_after_the_syncs_of_all_nodes(calls: list[Call]) -> None:
    pairs = [pair for key in KEYS for pair in answers(calls, key, "msgId")]
    assert len(pairs) == len(KEYS)
    for received, sent in pairs:
        for node in NODES:
            assert any(
                f"/{node}/commitlog/" in call.target
                and call.name in SYNCS
                and call.is_within(received.ended, sent.begun)
                for call in calls
            ), f"{node} had not synced when the master said: {sent.text}"


def test_the_coordinator_answers_after_the_sync_of_its_journal(calls: list[Call]) -> None:
    pairs = list(answers(calls, "POST /v3/kv/txn", r"succeeded\":true"))
    assert len(pairs) > len(NODES)
    for received, sent in pairs:
        assert any(
            call.target.endswith("/coordinator/journal")
            and call.name in SYNCS
            and call.is_within(received.begun, sent.begun)
            for call in calls
        ), f"its journal was not synced when the coordinator said: {sent.text}"


SPARES: Final = ("/coordinator/journal.new", "/coordinator/journal.old")
"""Blocks for a journal to come, in which nothing of what they hold is read any more."""


def promises(call: Call, rename: Call) -> bool:
    """Say whether what was sent may promise what the renamed file holds.

    A request of our own promises nothing. What a new file of the log holds is promised by the
    answer to a send; other answers may leave while its directory is being synced.
    """
    if call.name not in SENDS or r"\"flag\":0" in call.text:
        return False
    return rename.name != "linkat" or "msgId" in call.text


def test_a_file_gets_its_name_after_its_bytes_and_the_name_is_synced(calls: list[Call]) -> None:
    renames = [call for call in calls if call.name in RENAMES]
    assert {"rename", "linkat"} <= {call.name for call in renames}
    for rename in renames:
        old, new = rename.names[0], rename.names[-1]
        if new.endswith(SPARES):
            continue
        if rename.name != "linkat":
            # A file without a name is one of the log: of zeros until it is used.
            assert any(
                call.name in SYNCS and call.target == old and call.ended < rename.begun
                for call in calls
            ), f"{old} was renamed before it was synced"
        following = next(
            call
            for call in calls
            if call.begun > rename.ended
            and (call.thread == rename.thread or call.name in SYNCS)
            and (call.target == str(Path(new).parent) or promises(call, rename))
        )
        assert following.name in SYNCS, f"{following.text} left before the directory of {new}"
