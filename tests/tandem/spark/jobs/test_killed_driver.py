"""Jobs whose driver is killed, again and again: what they leave is continued, nothing is twice."""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

import msgspec
import pytest

from tandem.client import BlockingAdmin
from tandem.spark.archive.manifest import UnitState
from tandem.spark.archive.read import plan_archive, read_piece
from tandem.spark.archive.write import leftovers
from tandem.testing import running_cluster
from tests.support.small_archive import SmallArchive, places

ROUNDS_MAX = 40
KILLS_MIN = 3

pytestmark = [pytest.mark.long, pytest.mark.fault, pytest.mark.spark, pytest.mark.timeout(1200)]


class Driver:
    """A job in a process of its own."""

    def __init__(self, job: str, settings: dict[str, object]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tandem.spark.jobs", job, *_options(settings)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def kill_after(self, words: str, seconds: float) -> bool:
        """Kill it some time after it has said this; return whether it was still running."""
        assert self.process.stderr is not None
        said = _wait_for(self.process.stderr, words)
        if said:
            time.sleep(seconds)
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()
        return self.process.returncode == -signal.SIGKILL


def _wait_for(stream: IO[str], words: str) -> bool:
    return any(words in line for line in stream)


def test_an_archive_is_whole_however_often_its_job_is_killed(tmp_path: Path) -> None:
    small = SmallArchive(tmp_path, messages=3_000)
    settings: dict[str, object] = {
        "archive": str(small.archive_path),
        "stores": {"broker-a": str(small.store)},
        "master": "local[2]",
    }
    kills = 0
    chance = random.Random(13)
    for number in range(ROUNDS_MAX):
        # On a busy machine the first wave takes its time: later rounds get further.
        seconds = chance.uniform(0.5, 2 + 2 * number)
        killed = Driver("archive", settings).kill_after("0 of ", seconds)
        kills += killed
        # What a reader sees in between is never wrong.
        if (small.archive_path / "_tandem" / "archive.json").exists():
            assert small.manifest.faults() == []
            assert small.manifest.gaps() == []
        if not killed:
            break
    small.archive()
    assert kills >= KILLS_MIN
    rows = [
        row
        for piece in plan_archive(small.manifest)
        for batch in read_piece(piece, ["topic", "queueId", "queueOffset"])
        for row in batch.to_pylist()
    ]
    end = small.manifest.end_of("broker-a") or 0
    assert places(rows) == sorted(
        (message.topic, message.queue_id, message.queue_offset)
        for message in small.log.messages
        if message.physical_offset < end
    )
    assert all(unit.state is UnitState.VERIFIED for unit in small.manifest.units)
    known = {file.path: None for unit in small.manifest.units for file in unit.files}
    assert leftovers(small.archive_path, known) == []
    assert small.verify().faults == []


def test_a_replay_sends_everything_however_often_its_job_is_killed(tmp_path: Path) -> None:
    small = SmallArchive(tmp_path, messages=12_000).archive()
    (tmp_path / "cluster").mkdir()
    with running_cluster(tmp_path / "cluster", slaves_count=0) as cluster:
        with BlockingAdmin(cluster.name_servers) as admin:
            admin.create_topic("again", queue_nums=2)
        settings: dict[str, object] = {
            "state": str(tmp_path / "state"),
            "archive": str(small.archive_path),
            "source_topic": "orders",
            "topic": "again",
            "name_servers": list(cluster.name_servers),
            "messages_per_second": 1_000,
            "checkpoint_messages": 200,
            "master": "local[2]",
        }
        kills = 0
        chance = random.Random(13)
        for number in range(ROUNDS_MAX):
            seconds = chance.uniform(1, 3 + 2 * number)
            killed = Driver("replay", settings).kill_after("sending to", seconds)
            kills += killed
            if not killed:
                break
        assert kills >= 2
        sent = subprocess.run(
            [sys.executable, "-P", "-m", "tandem.spark.jobs", "replay", *_options(settings)],
            capture_output=True,
            text=True,
            check=True,
        )
        assert msgspec.json.decode(sent.stdout)["topic"] == "again"
        master = cluster.master()
        cluster.stop(master)
        stored = _stored(cluster.store_directory(master))
    end = small.manifest.end_of("broker-a") or 0
    wanted = {
        f"broker-a/orders/{message.queue_id}/{message.queue_offset}"
        for message in small.log.messages
        if message.topic == "orders" and message.physical_offset < end
    }
    assert {place for place, _ in stored} == wanted
    # What was sent again has the same key, so it can be told.
    assert len(set(stored)) == len(wanted)
    assert len(stored) >= len(wanted)


def _options(settings: dict[str, object]) -> list[str]:
    options = []
    for key, value in settings.items():
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        options += ["--set", f"{key}={text}"]
    return options


def _stored(store: Path) -> list[tuple[str, str]]:
    from tandem.spark.archive.log_piece import pieces_to_archive, rows_of  # noqa: PLC0415

    found = []
    for piece in pieces_to_archive("broker-a", str(store), [], take_open_file=True):
        for batch in rows_of(piece):
            for row in batch.to_pylist():
                if row["topic"] == "again":
                    properties = dict(row["properties"])
                    found.append((properties["REPLAYED_FROM"], properties["UNIQ_KEY"]))
    return found
