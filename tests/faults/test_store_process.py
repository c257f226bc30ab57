"""A store in a real process, on a real directory: kill -9 at any moment, again and again."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.faults.store_writer import open_here
from tests.store.store_world import check_store, number_of
from tests.support.patience import PATIENCE_SECONDS, wait_until
from tests.support.processes import ENVIRONMENT

pytestmark = [pytest.mark.fault, pytest.mark.slow]

ROUNDS: Final = 18
LONG_ROUNDS: Final = 250
ROUNDS_PER_STORE: Final = 30


class Writer:
    """The program that writes, and what it has been told is on disk."""

    def __init__(self, place: Path) -> None:
        self.directory = place / "store"
        self._acknowledged = place / "acknowledged"
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-P", "-m", "tests.faults.store_writer"),
                *(str(self.directory), str(self._acknowledged)),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
        )
        self.kills_in_recovery = 0

    def write_and_die(self, number: int, more: int, seconds: float) -> None:
        """Let a writer begin with message `number`; kill it some time after `more` are on disk."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{number}\n")
        process.stdin.flush()
        child = int(process.stdout.readline())
        before = len(self.acknowledged())
        wait_until(lambda: len(self.acknowledged()) >= before + more)
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
        assert process.stdout.readline() == "-9\n", "it ended by itself"
        self.kills_in_recovery += len(self.acknowledged()) == before

    def acknowledged(self) -> list[tuple[int, int]]:
        """Return number and end offset of what is said to be on disk."""
        if not self._acknowledged.exists():
            return []
        lines = self._acknowledged.read_text().splitlines()
        return [(int(number), int(end)) for number, end in map(str.split, lines)]

    def start_anew(self) -> None:
        """Forget everything."""
        shutil.rmtree(self.directory, ignore_errors=True)
        self._acknowledged.write_text("")

    def close(self) -> None:
        """End the program."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(PATIENCE_SECONDS)


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    program = Writer(tmp_path)
    try:
        yield program
    finally:
        program.close()


def check_everything(writer: Writer) -> int:
    """Open the store as the next process would; return the number of the next message."""
    acknowledged = writer.acknowledged()
    store = open_here(str(writer.directory))
    try:
        messages = check_store(store)
        assert [number_of(message) for message in messages] == list(range(len(messages)))
        if acknowledged:
            number, end = acknowledged[-1]
            assert len(messages) > number, "what was acknowledged is missing"
            assert store.max_physical_offset >= end
        while store.reput_service.is_index_behind:
            store.reput_service.index_some()
        for message in random.Random(len(messages)).sample(messages, min(5, len(messages))):
            key = f"k{number_of(message)}"
            (record,) = store.reads.query_message(message.topic, key, 32).records
            assert record == store.reads.look_message_by_offset(message.physical_offset)
        return len(messages)
    finally:
        # As if this one were killed as well: nothing is synced, the stop is not clean.
        store._unmap()


def kill_again_and_again(writer: Writer, rounds: int, seed: int) -> None:
    chance = random.Random(seed)
    number = 0
    for round_number in range(rounds):
        if round_number % ROUNDS_PER_STORE == ROUNDS_PER_STORE - 1:
            writer.start_anew()
            number = 0
        try:
            # With none it dies while it opens the store, or soon after.
            more = chance.choice((0, 0, 1, chance.randrange(60)))
            writer.write_and_die(number, more, 0.02 * chance.random())
            number = check_everything(writer)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, round {round_number}: {error}") from error


def test_kill_9_at_any_moment_costs_no_message_that_was_acknowledged(writer: Writer) -> None:
    kill_again_and_again(writer, ROUNDS, seed=1)
    acknowledged = writer.acknowledged()
    assert len(acknowledged) > 50, "it was killed before it did anything"
    assert len(list((writer.directory / "commitlog").iterdir())) > 2
    assert 0 < writer.kills_in_recovery < ROUNDS


@pytest.mark.long
@pytest.mark.timeout(900)
def test_kill_9_hundreds_of_times_costs_no_message_that_was_acknowledged(writer: Writer) -> None:
    kill_again_and_again(writer, LONG_ROUNDS, seed=time.monotonic_ns())
