"""Stores written by RocketMQ 5.5.0: opened, read message by message, and continued.

What is in them, and where they are from, is in tests/data/rocketmq-5.5.0/README.md. They go to and
fro between both in tests/compat/test_rocketmq_store.py, where there are Java and Maven.
"""

import tarfile
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pytest

from store import MessageStore, PutBatch
from store.machine.real_disk import RealDisk
from tandem.log.store_directory import open_store_directory
from tandem.log.verify import verify_store
from tandem.wire.message import Host
from tandem.wire.record_keys import key_hash
from tandem.wire.store_layout import INDEX_HEADER_BYTES, INDEX_SLOT_BYTES
from tandem.wire.unit_types import INDEX_UNIT_TYPE
from tests.compat.every_kind import BATCH_TOPIC, every_kind
from tests.compat.probe import Seen, differences
from tests.compat.store_probe import look
from tests.store.store_world import STORE_HOST, Clock, a_message, open_store, put, scrubbed
from tests.support.paths import ROOT

STORES: Final = ROOT / "tests/data/rocketmq-5.5.0/stores.tar.xz"
COMMON: Final[dict[str, Any]] = {
    "is_batch_topic": lambda topic: topic == BATCH_TOPIC,
    "mapper_file_size_batch_consume_queue_bytes": 46 * 4,
    "mapped_file_size_consume_queue_ext_bytes": 300,
}
SETTINGS: Final[dict[str, dict[str, Any]]] = {
    "plain": {},
    "crc": {"enabled_append_prop_crc": True, "force_verify_prop_crc": True},
    "ext": {"enable_consume_queue_ext": True},
    "v6": {"store_host": Host("2001:db8::9", 10911)},
}
STOPS: Final = ("clean", "killed")
FILES: Final = ("commitlog", "consumequeue", "batchconsumequeue", "consumequeue_ext")


class Golden(msgspec.Struct, frozen=True):
    """A copy of one store, and what RocketMQ's own store read in it before it stopped."""

    name: str
    root: Path
    seen: Seen

    def open(self, root: Path | None = None, clock: Clock | None = None) -> MessageStore:
        """Open the copy, or another store with the same settings."""
        settings = {"store_host": STORE_HOST, **COMMON, **SETTINGS[self.name]}
        return open_store(RealDisk(), str(root or self.root), clock=clock, **settings)


@pytest.fixture(params=[f"{name}-{stop}" for name in SETTINGS for stop in STOPS])
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> Golden:
    with tarfile.open(STORES) as archive:
        mine = [each for each in archive if each.name.startswith(request.param)]
        archive.extractall(tmp_path, mine)
    seen = (tmp_path / f"{request.param}.json").read_bytes()
    return Golden(
        request.param.partition("-")[0],
        tmp_path / request.param,
        msgspec.json.decode(seen, type=Seen),
    )


def test_every_message_is_read_as_rocketmq_read_it(golden: Golden) -> None:
    """By place in the log, by queue and by key, after a clean stop and after a kill."""
    with golden.open() as store:
        assert differences(golden.seen, look(store)) == []


def test_a_store_goes_on(golden: Golden) -> None:
    with golden.open() as store:
        for number in range(1000, 1050):
            put(store, a_message(number, body_bytes=200))
    with golden.open() as store:
        seen = look(store)
    before = len(golden.seen.messages)
    assert seen.messages[:before] == golden.seen.messages
    assert [m.properties["KEYS"] for m in seen.messages[before:]] == [
        f"k{number}" for number in range(1000, 1050)
    ]
    assert len(seen.keys["TopicA k1049"]) == 1
    queue, earlier = seen.queues["TopicA 0"], golden.seen.queues["TopicA 0"]
    assert (queue.min, queue.max) == (0, earlier.max + 50)
    assert queue.offsets[: len(earlier.offsets)] == earlier.offsets


def test_entries_of_tags_are_no_fault(golden: Golden) -> None:
    """`verify` takes an entry of the tags for one of its message, and so does a scrub."""
    found = verify_store(open_store_directory(golden.root)).findings
    assert [each for each in found if each.kind.startswith("index")] == []
    assert entries_of_tags(golden.root)
    with golden.open() as store:
        assert store.index_service is not None
        # What a store was not stopped after is entered anew.
        assert bool(store.index_service.files) == golden.root.name.endswith("-clean")
        assert scrubbed(store) == 0


def test_the_same_puts_make_the_same_bytes(golden: Golden, tmp_path: Path) -> None:
    """MessageExtEncoder, ConsumeQueue, ConsumeQueueExt, BatchConsumeQueue; IPv6; append CRC.

    5.5 leaves a batch's own properties out of its records; 5.3.3 and we append them to each.
    """
    clock, times = Clock(step_ms=0), iter(golden.seen.messages)
    with golden.open(tmp_path / "ours", clock) as store:
        for message in every_kind(0):
            clock.now_ms = next(times).stored_ms
            if isinstance(message, PutBatch):
                alone = msgspec.structs.replace(message, properties=b"")
                result = store.puts.put_batch(alone)
                for _ in range(result.msg_num - 1):
                    next(times)
            else:
                result = store.puts.put_message(message, hooks=False)
            assert result.status.name == "PUT_OK"
            store.announce()
    assert next(times, None) is None
    assert files_below(tmp_path / "ours") == files_below(golden.root)


def entries_of_tags(root: Path) -> list[int]:
    """The entries of the index that are of the one tag there is."""
    hashes = {key_hash(topic, b"T#" + "Tagé".encode()) for topic in ("TopicA", "TopicB")}
    units_at = INDEX_HEADER_BYTES + 100 * INDEX_SLOT_BYTES
    units = [
        unit
        for file in sorted((root / "index").iterdir())
        for unit in np.frombuffer(file.read_bytes()[units_at:], INDEX_UNIT_TYPE).tolist()
    ]
    return [unit[1] for unit in units if unit[0] in hashes]


def files_below(root: Path) -> dict[str, bytes]:
    """The files of log and queues, without one that was made ahead."""
    found = [each for name in FILES for each in (root / name).rglob("*") if each.is_file()]
    files = {str(each.relative_to(root)): each.read_bytes() for each in found}
    return {name: data for name, data in files.items() if any(data)}
