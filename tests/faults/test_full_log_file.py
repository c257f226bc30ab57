"""All nodes of a fenced group are gone just after a file of the log has filled up exactly."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tandem.wire.message import BLANK_MAGIC_CODE, Message
from tests.faults.real_group import NODES, PATIENT, TOPIC, Group, read_log, under_load, write_group
from tests.support.patience import until
from tests.support.processes import TANDEM

pytestmark = [pytest.mark.fault, pytest.mark.slow]

FILE_BYTES = 262_144
BIG_MESSAGES = 40
"""Of 60,000 bytes: some ten files of the log."""


def fill_up(directory: Path, end: int) -> None:
    """What a put does first that has no room in the last file: a blank takes what is left of it."""
    begin, left = end - end % FILE_BYTES, FILE_BYTES - end % FILE_BYTES
    assert left >= 8
    for file in (directory / "commitlog").iterdir():
        if int(file.name) > begin:
            file.unlink()
    with (directory / "commitlog" / f"{begin:020d}").open("r+b") as last:
        last.seek(end - begin)
        last.write(left.to_bytes(4, "big") + BLANK_MAGIC_CODE.to_bytes(4, "big"))


async def send_big(group: Group) -> None:
    async with group.safe_producer("big") as producer:
        for count in range(BIG_MESSAGES):
            key = f"big-{count}"
            group.sent.add(key)
            await producer.send(Message(TOPIC, bytes(60_000), keys=key))
            group.acked.add(key)


def tandem(*arguments: str) -> str:
    done = subprocess.run([*TANDEM, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


async def test_all_nodes_start_and_nothing_is_lost(tmp_path: Path) -> None:
    spec = write_group(tmp_path, coordinator=PATIENT)
    async with under_load(spec) as group:
        await send_big(group)
        await group.rest()
        await group.ends_are_equal()
        for name in NODES:
            await group.cluster.kill(name)
        ends = {len(read_log(node.directory)) for node in spec.nodes}
        assert len(ends) == 1
        for node in spec.nodes:
            fill_up(node.directory, *ends)
        # What an operator is told before the start is true: there is nothing to do.
        assert "sound" in tandem("log", "verify", str(spec.nodes[0].directory))
        await group.cluster.start()
        group.go_on()
        await group.acked_more()
        # A new replica copies ten files, each of which it fills to its last byte.
        await group.cluster.stop(NODES[2])
        shutil.rmtree(spec.node(NODES[2]).directory)
        await group.cluster.start(NODES[2])
        await group.in_sync(len(NODES))
        assert group.cluster.status()[2].starts_count == 3
        await until(lambda: len(list(spec.node(NODES[2]).directory.glob("commitlog/*"))) > 10)
