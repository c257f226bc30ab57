"""A small store with a compaction topic, and what is in its compaction log."""

from typing import Any, Final

import trio

from store import MessageStore, PutMessage
from store.machine.disk import Disk
from tandem.wire.message import MessageExt, decode_messages
from tandem.wire.message_properties import encode_properties
from tests.store.store_world import BORN_HOST, BORN_MS, open_store, put

TOPIC: Final = "State"
LOG: Final = f"/store/compaction/compactionLog/{TOPIC}/0"
CQ: Final = f"/store/compaction/compactionCq/{TOPIC}/0"
CQ_BYTES: Final = 46 * 8
"""Seven units a file, and a mark."""
LOG_BYTES: Final = 46 * 8 * 6
"""What `file_sizes` makes of five times as much: some fifteen small messages."""


def open_compacted(disk: Disk, **settings: Any) -> MessageStore:  # noqa: ANN401 - of StoreConfig
    """Open a store in which `State` is a compaction topic."""
    sizes = {
        "compaction_mapped_file_size_bytes": 5 * CQ_BYTES,
        "compaction_cq_mapped_file_size_bytes": CQ_BYTES,
    }
    return open_store(disk, **{"compacted": {TOPIC}, **sizes, **settings})


def keyed_message(key: str, text: str, *, topic: str = TOPIC, tags: str = "") -> PutMessage:
    properties = {"KEYS": key, "TAGS": tags}
    return PutMessage(
        topic=topic,
        queue_id=0,
        body=text.encode(),
        properties=encode_properties({name: value for name, value in properties.items() if value}),
        born_timestamp_ms=BORN_MS,
        born_host=BORN_HOST.packed,
    )


def put_keys(store: MessageStore, keys: str, *, start: int = 0) -> None:
    """Put a message for each letter, whose key it is; its body says how many there were."""
    for number, key in enumerate(keys, start):
        put(store, keyed_message(key, f"{key}{number}"))


def read_all(store: MessageStore, offset: int = 0) -> list[MessageExt]:
    """Read the queue as a consumer does, from a queue offset on."""
    found: list[MessageExt] = []
    for _ in range(1000):
        result = store.reads.get_message(TOPIC, 0, offset, 32)
        found += decode_messages(b"".join(result.body))
        if result.next_begin_offset == offset:
            return found
        offset = result.next_begin_offset
    raise AssertionError("it never ends")


def bodies(store: MessageStore, offset: int = 0) -> list[str]:
    """Return what a consumer gets, as `number:body`."""
    return [f"{each.queue_offset}:{each.body.decode()}" for each in read_all(store, offset)]


def compact(store: MessageStore) -> None:
    """Compact everything, after a flush of the log."""
    store.sync_log()
    trio.run(store.compaction.compact_all)


def names(disk: Disk, directory: str) -> list[int]:
    """Return the offsets that files are named by."""
    return [int(name) for name, _ in disk.list_files(directory)]
