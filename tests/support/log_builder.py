"""Builds commit logs and consume queues in memory, for tests that need bytes rather than a store.

Follows the same rules as a broker: queue offsets per topic and queue, physical offsets, a blank
record where the next record would not leave 8 bytes in the file, files of one size filled with
zeros. What is built can be damaged before it is written.
"""

import struct
from pathlib import Path
from typing import Any

import msgspec

from tandem.wire.crc import crc32
from tandem.wire.message import BLANK_MAGIC_CODE, Host, MessageExt, encode_record
from tandem.wire.message_properties import tags_code

_UNIT = struct.Struct(">qiq")
_BLANK = struct.Struct(">iI")

BORN_TIMESTAMP_MS = 1_700_000_000_000
"""The first message is born then; each one a millisecond after the one before."""


V6 = Host("2001:db8::1", 4321)


class LogBuilder:
    """A commit log in memory, with the consume queues that belong to it."""

    def __init__(self, *, file_bytes: int = 65_536, start_offset: int = 0) -> None:
        self.file_bytes = file_bytes
        self.start_offset = start_offset
        self.log = bytearray()
        self.messages: list[MessageExt] = []
        self._queue_ends: dict[tuple[str, int], int] = {}

    @property
    def end_offset(self) -> int:
        """Where the next byte would go."""
        return self.start_offset + len(self.log)

    def put(
        self,
        topic: str = "TopicA",
        body: bytes = b"hello",
        *,
        queue_id: int = 0,
        **fields: Any,  # noqa: ANN401
    ) -> MessageExt:
        """Append a message and return it as stored.

        `fields` are those of MessageExt, and `keys` and `tags`.
        """
        properties = dict(fields.pop("properties", {}))
        for name in ("keys", "tags"):
            if value := fields.pop(name, ""):
                properties[name.upper()] = value
        queue = (topic, queue_id)
        stamp = BORN_TIMESTAMP_MS + len(self.messages)
        message = msgspec.structs.replace(
            MessageExt(
                topic=topic,
                body=body,
                properties=properties,
                queue_id=queue_id,
                queue_offset=self._queue_ends.get(queue, 0),
                physical_offset=0,
                store_size=0,
                flag=0,
                sys_flag=0,
                born_timestamp_ms=stamp,
                born_host=Host("10.1.2.3", 1234),
                store_timestamp_ms=stamp + 5,
                store_host=Host("127.0.0.1", 10911),
                reconsume_times=0,
                prepared_transaction_offset=0,
                body_crc=crc32(body),
            ),
            **fields,
        )
        self._queue_ends[queue] = message.queue_offset + 1
        size = len(encode_record(message))
        if size + 8 > self.file_bytes - len(self.log) % self.file_bytes:
            self.roll()
        message = msgspec.structs.replace(message, physical_offset=self.end_offset, store_size=size)
        self.log += encode_record(message)
        self.messages.append(message)
        return message

    def make_anew(self, topic: str) -> None:
        """Delete a topic and make it again: its queues count from 0, its records stay."""
        self._queue_ends = {key: end for key, end in self._queue_ends.items() if key[0] != topic}

    def roll(self) -> None:
        """Close the file with a blank record, as a broker does when the next one does not fit."""
        left = self.file_bytes - len(self.log) % self.file_bytes
        self.log += blank(left)

    def files(self) -> dict[str, bytes]:
        """The commit-log files by name; the last one filled up with zeros."""
        filler = -len(self.log) % self.file_bytes
        whole = bytes(self.log) + bytes(filler)
        return {
            f"{self.start_offset + at:020d}": whole[at : at + self.file_bytes]
            for at in range(0, len(whole), self.file_bytes)
        }

    def write(
        self, root: Path, *, consume_queues: bool = True, queue_file_bytes: int = 20_000
    ) -> Path:
        """Write a store root: `commitlog`, and `consumequeue` unless told otherwise."""
        (root / "commitlog").mkdir(parents=True, exist_ok=True)
        for name, data in self.files().items():
            (root / "commitlog" / name).write_bytes(data)
        if consume_queues:
            self._write_consume_queues(root / "consumequeue", queue_file_bytes)
        return root

    def _write_consume_queues(self, folder: Path, file_bytes: int) -> None:
        queues: dict[tuple[str, int], bytearray] = {}
        for message in self.messages:
            unit = _UNIT.pack(message.physical_offset, message.store_size, tags_code(message.tags))
            queues.setdefault((message.topic, message.queue_id), bytearray()).extend(unit)
        for (topic, queue_id), written in queues.items():
            queue_folder = folder / topic / str(queue_id)
            queue_folder.mkdir(parents=True, exist_ok=True)
            units = written + bytes(-len(written) % file_bytes)
            for at in range(0, len(units), file_bytes):
                (queue_folder / f"{at:020d}").write_bytes(units[at : at + file_bytes])


def blank(size: int) -> bytes:
    """The record that ends a file."""
    return _BLANK.pack(size, BLANK_MAGIC_CODE) + bytes(size - 8)


def record_starts(log: bytes | bytearray) -> list[int]:
    """Where each record of a log begins, blank ones included."""
    starts = []
    position = 0
    while position < len(log):
        starts.append(position)
        position += int.from_bytes(log[position : position + 4], "big")
    return starts


def mixed_log() -> LogBuilder:
    """Every shape of record: v4 and v6 hosts in all pairs, V1 and V2, empty parts."""
    log = LogBuilder(file_bytes=1 << 20)
    for born in (Host("10.1.2.3", 1), V6):
        for store in (Host("127.0.0.1", 2), V6):
            log.put(body=b"body", born_host=born, store_host=store, flag=-7, reconsume_times=3)
            log.put(topic="L" * 130, body=b"v2", born_host=born, store_host=store, tags="t")
            log.put(topic="", body=b"", born_host=born, store_host=store)
            log.put(body=b"x", born_host=born, sys_flag=0xC, prepared_transaction_offset=1 << 40)
    return log
