"""Stores whose files somebody has damaged, and what must be true of a store whatever was done.

A `Specimen` is a store on disk as plain bytes, by path. `mutate` does one thing to it that a bad
disk, a bad copy or a bad person could do. `check_hostile` then opens it: either it is refused with
one clear line, or it works as if nothing had been, with what is left.
"""

import random
import zlib
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import msgspec

from node.simulated.disk import SimulatedDisk
from store import MessageStore, PutBatch, PutMessage
from store.machine.errors import RecordDamagedError, StoreError
from store.queue.batch_consume_queue import BatchConsumeQueue
from store.results import GetMessageStatus
from tandem.wire.crc import CRC_MASK
from tandem.wire.message import INNER_BATCH_FLAG, decode_message
from tandem.wire.message_properties import encode_properties
from tests.store.store_world import (
    BORN_HOST,
    BORN_MS,
    DIRECTORY,
    Clock,
    a_batch,
    a_message,
    files_of,
    open_store,
    put,
)
from tests.support.paths import GOLDEN

Files = dict[str, bytes]

BATCH_TOPIC: Final = "Batches"
EXT_SETTINGS: Final = {
    "enable_consume_queue_ext": True,
    "mapped_file_size_consume_queue_ext_bytes": 200,
}
INTERESTING: Final = (
    *(-1, 0, 1, 7, 19, 20, 90, 91, 4095, 8191, 8192, 8193, 20_000),
    *((1 << 31) - 1, -(1 << 31), 1 << 32, 1 << 62, (1 << 63) - 1, -(1 << 63)),
)


class Specimen(msgspec.Struct, frozen=True):
    """A store at rest. `is_killed`: it was never closed."""

    name: str
    files: Files
    settings: dict[str, Any] = {}
    is_killed: bool = False

    def with_files(self, files: Files) -> "Specimen":
        """Return the same store with other files."""
        return msgspec.structs.replace(self, files=files)

    def disk(self) -> SimulatedDisk:
        """Put the files on a disk."""
        disk = SimulatedDisk()
        for path, content in self.files.items():
            disk.replace(path, content)
        if self.is_killed:
            disk.replace(f"{DIRECTORY}/abort", b"4711")
        return disk

    def open(self, disk: SimulatedDisk) -> MessageStore:
        """Open the store on `disk` with its settings."""
        return open_store(
            disk,
            clock=Clock(1_900_000_000_000),
            is_batch_topic=lambda topic: topic == BATCH_TOPIC,
            **self.settings,
        )


# -- stores to start from ------------------------------------------------------------------------


def specimens() -> list[Specimen]:
    """Build one store of each kind, closed and killed, and load those of RocketMQ."""
    made = [
        *(_written("plain", 80, is_killed=killed) for killed in (False, True)),
        *(_written("ext", 60, is_killed=killed, **EXT_SETTINGS) for killed in (False, True)),
        *(_written("index", 40, is_killed=k, max_index_num=12) for k in (False, True)),
        _written("crc", 30, is_killed=True, enabled_append_prop_crc=True),
        _written("one", 3, is_killed=False),
    ]
    return [*made, *_golden()]


def _written(name: str, count: int, *, is_killed: bool, **settings: Any) -> Specimen:  # noqa: ANN401
    disk = SimulatedDisk()
    settings["mapper_file_size_batch_consume_queue_bytes"] = 230
    empty = Specimen(name, {}, settings)
    store = empty.open(disk)
    for number in range(count):
        put(store, _some_message(number))
    if not is_killed:
        store.close()
    while is_killed and store.reput_service.is_index_behind:
        store.reput_service.index_some()
    return Specimen(
        f"{name} {'killed' if is_killed else 'closed'}", files_of(disk), settings, is_killed
    )


def _some_message(number: int) -> PutMessage | PutBatch:
    kind = number % 10
    if kind == 3:
        return a_batch(range(1000 + number, 1003 + number), "TopicB")
    if kind == 5:
        unique = encode_properties({"UNIQ_KEY": f"U{number}"})
        batch = a_batch(range(1000 + number, 1004 + number), BATCH_TOPIC)
        return msgspec.structs.replace(batch, properties=unique)
    if kind == 7:
        properties = {"DELAY": "3", "KEYS": f"k{number}", "TAGS": "TagA"}
        return PutMessage(
            "TopicA", 1, b"%d:" % number, encode_properties(properties), BORN_MS, BORN_HOST.packed
        )
    sizes = (0, 300, 40, 900)
    return a_message(number, "TopicA", number % 2, body_bytes=sizes[number % 4])


def _golden() -> list[Specimen]:
    settings: dict[str, dict[str, Any]] = {
        "idx": {"max_hash_slot_num": 7, "max_index_num": 5},
        "crc": {"enabled_append_prop_crc": True, "force_verify_prop_crc": True},
        "ext": {"enable_consume_queue_ext": True, "mapped_file_size_consume_queue_ext_bytes": 100},
    }
    found = []
    for root in sorted(GOLDEN.iterdir()):
        if root.is_dir() and root.name not in ("config-json", "compaction"):  # the latter is packed
            paths = [path for path in root.rglob("*") if path.is_file()]
            files = {f"{DIRECTORY}/{p.relative_to(root)}": p.read_bytes() for p in paths}
            own = {"mapper_file_size_batch_consume_queue_bytes": 230, **settings.get(root.name, {})}
            found.append(Specimen(f"golden {root.name}", files, own))
    return found


# -- what is done to them ------------------------------------------------------------------------


def kind_of(path: str) -> str:
    """Return the directory of the store that a file is in, or the name of a single file."""
    return path.removeprefix(f"{DIRECTORY}/").split("/")[0]


def _chosen(files: Files, chance: random.Random) -> str:
    kind = chance.choice(sorted({kind_of(path) for path in files}))
    return chance.choice(sorted(path for path in files if kind_of(path) == kind))


def _position(content: bytes, chance: random.Random) -> int:
    """Choose a place, mostly one where something is written."""
    used = len(content.rstrip(b"\0"))
    limit = used if used and chance.random() < 0.9 else len(content)
    return chance.randrange(max(1, limit))


def _patched(content: bytes, position: int, patch: bytes) -> bytes:
    return (content[:position] + patch + content[position + len(patch) :])[: len(content)]


def flip_a_bit(files: Files, chance: random.Random) -> str:
    path = _chosen(files, chance)
    content = bytearray(files[path])
    if not content:
        return "nothing"
    position = _position(files[path], chance)
    content[position] ^= 1 << chance.randrange(8)
    files[path] = bytes(content)
    return f"flip a bit of byte {position} of {path}"


def overwrite_with_noise(files: Files, chance: random.Random) -> str:
    path = _chosen(files, chance)
    position, size = _position(files[path], chance), chance.choice((1, 4, 20, 200, 4000))
    files[path] = _patched(files[path], position, chance.randbytes(size))
    return f"{size} bytes of noise at {position} of {path}"


def overwrite_a_number(files: Files, chance: random.Random) -> str:
    path = _chosen(files, chance)
    width = chance.choice((2, 4, 8))
    value = chance.choice(INTERESTING)
    position = _position(files[path], chance)
    aligned = position - position % chance.choice((1, 4, 20))
    patch = (value % (1 << 8 * width)).to_bytes(width, "big")
    files[path] = _patched(files[path], aligned, patch)
    return f"number {value} of {width} bytes at {aligned} of {path}"


def zero_a_range(files: Files, chance: random.Random) -> str:
    path = _chosen(files, chance)
    position, size = _position(files[path], chance), chance.choice((1, 8, 20, 512, 4096, 10_000))
    files[path] = _patched(files[path], position, bytes(size))
    return f"{size} zeros at {position} of {path}"


def copy_a_range(files: Files, chance: random.Random) -> str:
    source, path = _chosen(files, chance), _chosen(files, chance)
    start, size = _position(files[source], chance), chance.choice((20, 46, 200, 1000))
    position = _position(files[path], chance)
    files[path] = _patched(files[path], position, files[source][start : start + size])
    return f"{size} bytes from {start} of {source} to {position} of {path}"


def shift(files: Files, chance: random.Random) -> str:
    """Insert or drop bytes; the length stays."""
    path = _chosen(files, chance)
    content = files[path]
    position, size = _position(content, chance), chance.choice((1, 2, 4, 8, 20, 91))
    if chance.random() < 0.5:
        moved = content[:position] + chance.randbytes(size) + content[position:]
    else:
        moved = content[:position] + content[position + size :]
    files[path] = moved[: len(content)].ljust(len(content), b"\0")
    return f"shift by {size} at {position} of {path}"


def change_the_length(files: Files, chance: random.Random) -> str:
    path = _chosen(files, chance)
    content = files[path]
    size = chance.choice(
        (0, 1, len(content) // 2, max(0, len(content) - 1), len(content) + 1, len(content) + 4096)
    )
    files[path] = content[:size].ljust(size, b"\0")
    return f"{path} gets {size} bytes"


def remove_a_file(files: Files, chance: random.Random) -> str:
    path = _chosen(files, chance)
    del files[path]
    return f"remove {path}"


def remove_a_tree(files: Files, chance: random.Random) -> str:
    path = _chosen(files, chance)
    levels = path.split("/")
    tree = "/".join(levels[: chance.randrange(3, len(levels) + 1)])
    for name in [name for name in files if name == tree or name.startswith(f"{tree}/")]:
        del files[name]
    return f"remove {tree}"


def swap_two_files(files: Files, chance: random.Random) -> str:
    one, other = _chosen(files, chance), _chosen(files, chance)
    files[one], files[other] = files[other], files[one]
    return f"swap {one} and {other}"


def swap_neighbours(files: Files, chance: random.Random) -> str:
    """Swap two files of one kind and, usually, of one length."""
    one = _chosen(files, chance)
    alike = sorted(path for path in files if kind_of(path) == kind_of(one))
    other = chance.choice(alike)
    files[one], files[other] = files[other], files[one]
    return f"swap {one} and {other}"


def rename_a_file(files: Files, chance: random.Random) -> str:
    path = _chosen(files, chance)
    directory, _, name = path.rpartition("/")
    number = int(name) if name.isdecimal() else 0
    names = (
        *(
            "x",
            "00",
            f"{name}.bak",
            name[:-1],
            f"{name}0",
            "9" * len(name),
            name.replace("0", "\u0660"),
        ),
        *(f"{max(0, number + step):0{len(name)}d}" for step in (1, -1, 200, 8192, -8192, 1 << 62)),
    )
    new = f"{directory}/{chance.choice(names)}"
    files[new] = files.pop(path)
    return f"rename {path} to {new}"


def add_a_file(files: Files, chance: random.Random) -> str:
    path = _chosen(files, chance)
    directory, _, name = path.rpartition("/")
    number = int(name) if name.isdecimal() else 0
    size = len(files[path])
    new = f"{directory}/" + chance.choice(
        (
            f"{number + size:0{len(name)}d}",
            f"{number + 2 * size:0{len(name)}d}",
            "notes",
            "z",
            "\u0663",
        )
    )
    contents = (b"", bytes(size), files[path], chance.randbytes(min(size, 9000)))
    files[new] = chance.choice(contents)
    return f"add {new} with {len(files[new])} bytes"


def add_a_queue(files: Files, chance: random.Random) -> str:
    """Copy the files of one queue to another topic, another number, another kind of queue."""
    queues = sorted({path.rpartition("/")[0] for path in files if path.count("/") == 5})
    if not queues:
        return "nothing"
    source = chance.choice(queues)
    tree, topic, queue_id = source.rsplit("/", 2)
    tree = chance.choice((tree, f"{DIRECTORY}/consumequeue", f"{DIRECTORY}/batchconsumequeue"))
    topic = chance.choice((topic, "Stranger", "TopicA", BATCH_TOPIC, "%RETRY%g", "ünï\U0001f600"))
    queue_id = chance.choice((queue_id, "7", "007", "-1", "\u0663", "99999999999999999999", "x"))
    for path in [path for path in files if path.startswith(f"{source}/")]:
        files[f"{tree}/{topic}/{queue_id}/{path.rpartition('/')[2]}"] = files[path]
    return f"copy {source} to {tree}/{topic}/{queue_id}"


MUTATIONS: Final[tuple[Callable[[Files, random.Random], str], ...]] = (
    flip_a_bit,
    flip_a_bit,
    overwrite_with_noise,
    overwrite_a_number,
    overwrite_a_number,
    zero_a_range,
    copy_a_range,
    shift,
    change_the_length,
    remove_a_file,
    remove_a_tree,
    swap_two_files,
    swap_neighbours,
    rename_a_file,
    add_a_file,
    add_a_queue,
)


def mutate(specimen: Specimen, chance: random.Random) -> tuple[Specimen, str]:
    """Do one thing to a store, sometimes two or three; return it and what was done."""
    files = dict(specimen.files)
    count = chance.choice((1, 1, 1, 2, 3))
    done = [chance.choice(MUTATIONS)(files, chance) for _ in range(count) if files]
    mutated = specimen.with_files(files)
    if chance.random() < 0.2:
        mutated = msgspec.structs.replace(mutated, is_killed=not specimen.is_killed)
    return mutated, "; ".join(done)


# -- what must be true ---------------------------------------------------------------------------


def check_hostile(specimen: Specimen) -> str:
    """Open a damaged store, work with it, open it again; return why it was refused, "" if not."""
    disk = specimen.disk()
    before = files_of(disk)
    try:
        store = specimen.open(disk)
    except StoreError as error:
        check_refusal(str(error), before, files_of(disk))
        return str(error)
    found = read_everything(store)
    for topic, queue_id in store.list_queues():
        put_one_more(store, topic, queue_id)
    put_one_more(store, "New", 0)
    after = read_everything(store)
    assert {key: after[key][: len(found[key])] for key in found} == found
    store.close()
    closed = files_of(disk)
    try:
        again = specimen.open(disk)
    except StoreError as error:
        # It looks at more of the log this time, and meets what it has passed over before.
        check_refusal(str(error), closed, files_of(disk))
        return str(error)
    # What is built from the log may still get better.
    last = read_everything(again)
    assert last.keys() == after.keys()
    # The number of a batch stands in its record twice, and no checksum covers either.
    assert all(set(last[key]) >= set(after[key]) for key in after if key[0] != BATCH_TOPIC)
    assert [p for p in differing(files_of(disk), closed) if kind_of(p) == "commitlog"] == []
    again.close()
    return ""


def check_refusal(text: str, before: Files, after: Files) -> None:
    """Check that a refusal is one line that names a file and a remedy, and keeps its word."""
    assert "\n" not in text
    assert DIRECTORY in text, text
    assert any(
        word in text for word in ("restore", "Restore", "move", "delete", "start", "give")
    ), text
    for path, content in before.items():
        if kind_of(path) in ("commitlog", "config"):
            assert after.get(path) == content or not content, path


def read_everything(store: MessageStore) -> dict[tuple[str, int], list[int]]:
    """Read every queue, look up every record by offset and key; return the queue offsets found."""
    found = {}
    for topic, queue_id in store.list_queues():
        low = store.reads.min_offset_in_queue(topic, queue_id)
        high = store.reads.max_offset_in_queue(topic, queue_id)
        assert 0 <= low <= high
        found[topic, queue_id] = _read_queue(store, topic, queue_id, low, high)
    for key in ("k1", "k17", "U4", "U0", "nobody's"):
        with suppress(RecordDamagedError):
            for record in store.reads.query_message("TopicA", key, 32).records:
                _check_record(store, record)
    _look_everywhere(store)
    return found


def _read_queue(store: MessageStore, topic: str, queue_id: int, low: int, high: int) -> list[int]:
    offsets: list[int] = []
    next_offset = low
    while next_offset < high:
        result = store.reads.get_message(topic, queue_id, next_offset, 32)
        count = 0
        any_inner = False
        for view in result.body:
            data = bytes(view)
            while data:
                size = _check_record(store, data)
                message, _ = decode_message(data[:size])
                assert (message.topic, message.queue_id) == (topic, queue_id)
                inner = bool(message.sys_flag & INNER_BATCH_FLAG)
                any_inner |= inner
                # No checksum covers the properties: what they say may not be what the unit says.
                count += result.message_count if inner else 1
                if not inner:
                    assert next_offset <= message.queue_offset < high
                    assert not offsets or message.queue_offset > offsets[-1]
                offsets.append(message.queue_offset)
                data = data[size:]
        assert count == result.message_count or any_inner
        assert (result.status is GetMessageStatus.FOUND) == (count > 0)
        if result.damaged is not None:
            # It waits there for ever; somebody moves it past the record.
            assert result.next_begin_offset == next_offset
            next_offset += 1
            continue
        assert result.next_begin_offset > next_offset
        next_offset = result.next_begin_offset
    return offsets


def _check_record(store: MessageStore, data: bytes) -> int:
    """Check that valid record lies at the beginning of `data`, and in the log; return its size."""
    message, size = decode_message(data)
    assert not message.body or zlib.crc32(message.body) & CRC_MASK == message.body_crc
    with store.read_log(message.physical_offset, size) as view:
        assert bytes(view) == data[:size]
    return size


def _look_everywhere(store: MessageStore) -> None:
    low, high = store.min_physical_offset, store.max_physical_offset
    for offset in (
        low - 1,
        low,
        low + 1,
        (low + high) // 2,
        high - 1,
        high,
        1 << 62,
        -1,
        -(1 << 62),
    ):
        with suppress(RecordDamagedError):
            record = store.reads.look_message_by_offset(offset)
            if record is not None:
                assert _check_record(store, record) == len(record)
    for topic, queue_id in store.list_queues():
        for time_ms in (0, BORN_MS, 1 << 62):
            for upper in (False, True):
                try:
                    at = store.reads.offset_in_queue_by_time(topic, queue_id, time_ms, upper=upper)
                except RecordDamagedError:
                    continue
                low = store.reads.min_offset_in_queue(topic, queue_id)
                assert low <= at <= store.reads.max_offset_in_queue(topic, queue_id)


def put_one_more(store: MessageStore, topic: str, queue_id: int) -> None:
    """Put a message; it gets the next number of its queue and can be read."""
    expected = store.reads.max_offset_in_queue(topic, queue_id)
    if topic == BATCH_TOPIC or isinstance(store.queues.find(topic, queue_id), BatchConsumeQueue):
        batch = a_batch(range(2), topic, queue_id)
        unique = encode_properties({"UNIQ_KEY": "U"})
        result = store.puts.put_batch(msgspec.structs.replace(batch, properties=unique))
    else:
        result = store.puts.put_message(a_message(99_999, topic, queue_id))
    assert result.status.name == "PUT_OK", result
    assert result.queue_offset == expected
    store.announce()
    read = store.reads.get_message(topic, queue_id, expected, 1)
    assert read.status is GetMessageStatus.FOUND, (topic, queue_id, read)


def differing(one: Files, other: Files) -> list[str]:
    """Return the paths at which two stores differ."""
    return sorted(path for path in {**one, **other} if one.get(path) != other.get(path))
