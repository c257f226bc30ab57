"""RocketMQ 5.3.3's DefaultMessageStore opens, reads and continues our stores, and we its."""

import json
import shutil
from pathlib import Path

import msgspec
import pytest

from store import MessageStore, PutMessageStatus, StoreFullError
from store.disk import RealDisk, RealFile
from tandem.wire.message import Host, MessageExt
from tandem.wire.message_properties import decode_properties
from tests.compat.conftest import RunJava
from tests.store.store_world import (
    COMMIT_LOG_BYTES,
    CONSUME_QUEUE_BYTES,
    a_batch,
    a_message,
    check_store,
    open_store,
    put,
    put_many,
)

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

LONG_RETRY_TOPIC = "%RETRY%" + "g" * 200


class Seen(msgspec.Struct, frozen=True):
    """One message as RocketMQ decoded it."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    store_size: int
    flag: int
    sys_flag: int
    born_ms: int
    stored_ms: int
    msg_id: str
    body: str
    properties: str


def probe(
    run_java: RunJava, root: Path, queues: list[tuple[str, int]], append: int, *, halt: bool = False
) -> tuple[list[Seen], int]:
    """Let RocketMQ open the store; return what it read, and where its log ended."""
    names = [part for topic, queue_id in queues for part in (topic, queue_id)]
    sizes = (COMMIT_LOG_BYTES, CONSUME_QUEUE_BYTES)
    lines = run_java(
        "StoreProbe", root, *sizes, append, *names, probe_halt=str(halt).lower()
    ).stdout.splitlines()
    seen = [msgspec.json.decode(line, type=Seen) for line in lines if line.startswith('{"topic"')]
    end = next(json.loads(line) for line in lines if line.startswith('{"max'))
    return seen, end["max_physical_offset"]


def as_seen(message: MessageExt) -> Seen:
    return Seen(
        topic=message.topic,
        queue_id=message.queue_id,
        queue_offset=message.queue_offset,
        physical_offset=message.physical_offset,
        store_size=message.store_size,
        flag=message.flag,
        sys_flag=message.sys_flag,
        born_ms=message.born_timestamp_ms,
        stored_ms=message.store_timestamp_ms,
        msg_id=message.offset_msg_id,
        body=message.body.hex(),
        properties="",
    )


def same_messages(seen: list[Seen], ours: list[MessageExt]) -> None:
    by_place = sorted(ours, key=lambda m: m.physical_offset)
    theirs = sorted(seen, key=lambda m: m.physical_offset)
    for found, message in zip(theirs, by_place, strict=True):
        assert msgspec.structs.replace(found, properties="") == as_seen(message)
        assert decode_properties(bytes.fromhex(found.properties)) == message.properties


def fill(store: MessageStore) -> None:
    put_many(store, 60)
    put(store, a_batch(range(60, 75)))
    put(store, a_message(75, LONG_RETRY_TOPIC))
    put(store, msgspec.structs.replace(a_message(76), flag=-7, reconsume_times=3))
    put(store, msgspec.structs.replace(a_message(77), born_host=Host("2001:db8::1", 7).packed))


@pytest.mark.parametrize("ours_ends", ["cleanly", "killed"])
@pytest.mark.parametrize("java_ends", ["cleanly", "killed"])
def test_rocketmq_reads_and_continues_a_store_of_ours_and_we_read_it_again(
    tmp_path: Path, run_java: RunJava, ours_ends: str, java_ends: str
) -> None:
    """DefaultMessageStore.load, recover, getMessage, putMessage; after a clean stop and a kill."""
    root = tmp_path / "store"
    with open_store(RealDisk(), str(root)) as store:
        fill(store)
        ours = check_store(store)
        end = store.max_physical_offset
        queues = store.list_queues()
    if ours_ends == "killed":  # then the next log file lies there as well, prepared
        (root / "abort").write_text("1")
        following = end - end % COMMIT_LOG_BYTES + COMMIT_LOG_BYTES
        (root / "commitlog" / f"{following:020d}").write_bytes(bytes(COMMIT_LOG_BYTES))
    seen, theirs = probe(run_java, root, queues, 7, halt=java_ends == "killed")
    same_messages(seen, ours)
    assert theirs > end
    with open_store(RealDisk(), str(root)) as store:
        again = check_store(store)
        assert store.max_physical_offset == theirs
        assert again[: len(ours)] == ours
        assert len(again) == len(ours) + 7 * len(queues)
        assert [m.body for m in again[len(ours) :][:7]] == [b"java %d" % n for n in range(7)]
        put_many(store, 30, start=100)
        ours = check_store(store)
    seen, _ = probe(run_java, root, queues, 0)
    same_messages(seen, ours)


class FullDisk(RealDisk):
    """Has no room for another commit log file once it is `full`."""

    full = False

    def create(self, path: str, size: int) -> RealFile:
        if self.full and "/commitlog/" in path:
            raise StoreFullError(f"{path}: no room", path=path)
        return super().create(path, size)


def test_rocketmq_opens_a_store_whose_disk_was_full_at_a_new_queue_file(
    tmp_path: Path, run_java: RunJava
) -> None:
    """An empty last queue file makes 5.3.3 shift the queue by one, or fail the load."""
    root, disk = tmp_path / "store", FullDisk()
    store = open_store(disk, str(root))
    for number in range(10):  # fills the first file of the queue
        put(store, a_message(number, body_bytes=650))
    disk.full = True
    for refused in (
        store.put_message(a_message(10, body_bytes=5000)),
        store.put_batch(a_batch(range(10, 60))),
    ):
        assert refused.status is PutMessageStatus.CREATE_MAPPED_FILE_FAILED
    ours = check_store(store)
    killed = Path(shutil.copytree(root, tmp_path / "killed"))
    store.close()
    for directory in (root, killed):
        seen, _ = probe(run_java, directory, [("TopicA", 0)], 3)
        same_messages(seen, ours)
        with open_store(RealDisk(), str(directory)) as again:
            assert len(check_store(again)) == 13
