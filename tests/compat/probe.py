"""A store at the other end of a pipe: one line of JSON in, one line out, ours and RocketMQ's alike.

`java/StoreProbe.java` tells the commands; `store_probe.py` is the same for our store.
"""

import subprocess
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from store import PutBatch, PutMessage
from tandem.wire.message import Host, unpack_host
from tests.store.store_world import COMMIT_LOG_BYTES, CONSUME_QUEUE_BYTES, STORE_HOST


class SeenMessage(msgspec.Struct, frozen=True):
    """One record, decoded by whoever was asked."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    store_size: int
    flag: int
    sys_flag: int
    born_ms: int
    born_host: str
    stored_ms: int
    reconsume_times: int
    prepared_transaction_offset: int
    msg_id: str
    body: str
    properties: dict[str, str]


class SeenQueue(msgspec.Struct, frozen=True):
    """One queue: its ends, and the physical offsets of its records in the order of reading."""

    min: int
    max: int
    offsets: list[int]


class Seen(msgspec.Struct, frozen=True):
    """A whole store: by physical offset, by queue, by key."""

    max_physical_offset: int
    messages: list[SeenMessage]
    queues: dict[str, SeenQueue]
    keys: dict[str, list[int]]


class Loaded(msgspec.Struct, frozen=True):
    """Where recovery found the ends of log and queues."""

    max_physical_offset: int
    queues: dict[str, int]


class Settings(msgspec.Struct, frozen=True):
    """What a store is opened with, whoever opens it."""

    enabled_append_prop_crc: bool = False
    enable_consume_queue_ext: bool = False
    store_host: Host = STORE_HOST
    batch_topics: tuple[str, ...] = ()
    commit_log_bytes: int = COMMIT_LOG_BYTES
    consume_queue_bytes: int = CONSUME_QUEUE_BYTES
    max_hash_slot_num: int = 100
    max_index_num: int = 400
    is_slave: bool = False

    def of_rocketmq(self) -> dict[str, Any]:
        """The same in the words of MessageStoreConfig."""
        return {
            "brokerRole": "SLAVE" if self.is_slave else "ASYNC_MASTER",
            "mappedFileSizeCommitLog": self.commit_log_bytes,
            "mappedFileSizeConsumeQueue": self.consume_queue_bytes,
            "mapperFileSizeBatchConsumeQueue": BATCH_CONSUME_QUEUE_BYTES,
            "mappedFileSizeConsumeQueueExt": EXT_BYTES,
            "maxHashSlotNum": self.max_hash_slot_num,
            "maxIndexNum": self.max_index_num,
            # By default 5.3.3 loses keys in a hard stop: it deletes index files, and enters anew
            # only the records of the last seconds.
            "messageIndexSafe": True,
            "enabledAppendPropCRC": self.enabled_append_prop_crc,
            "forceVerifyPropCRC": self.enabled_append_prop_crc,
            "enableConsumeQueueExt": self.enable_consume_queue_ext,
        }


BATCH_CONSUME_QUEUE_BYTES = 46 * 4
EXT_BYTES = 300


class ProbeFailedError(Exception):
    """The other end died. Tells its last words."""


class Probe:
    """One process that opens stores. Started when it is asked something, again after a `halt`."""

    def __init__(self, command: Sequence[str], *, cwd: Path, log: Path) -> None:
        self._command = command
        self._cwd = cwd
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.halt()

    def _ask(self, do: str, **arguments: object) -> bytes:
        if self._process is None:
            with self._log.open("ab") as log:
                self._process = subprocess.Popen(
                    self._command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    cwd=self._cwd,
                )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(msgspec.json.encode({"do": do, **arguments}) + b"\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer and do != "halt":
            self._end()
            raise ProbeFailedError(f"{do} {arguments}: {self._log.read_text()[-3000:]}")
        return answer

    def _end(self) -> None:
        if self._process is not None:
            for pipe in (self._process.stdin, self._process.stdout):
                assert pipe is not None
                pipe.close()
            self._process.wait(20)
            self._process = None

    def open(self, directory: Path, settings: Settings) -> bool:
        """Load, recover and start; false if the store cannot be."""
        return msgspec.json.decode(self._ask("open", **_place(directory, settings)), type=bool)

    def load(self, directory: Path, settings: Settings) -> Loaded | None:
        """Load and recover only; None if the store cannot be."""
        answer = self._ask("load", **_place(directory, settings))
        return msgspec.json.decode(answer, type=Loaded | None)

    def put(
        self, directory: Path, messages: Sequence[PutMessage | PutBatch], store_host: Host
    ) -> list[str]:
        """Put all of them; return the names of the statuses."""
        as_json = [_put_json(message, store_host) for message in messages]
        answer = self._ask("put", directory=str(directory), messages=as_json)
        return msgspec.json.decode(answer, type=list[str])

    def look(self, directory: Path) -> Seen:
        """Read everything."""
        return msgspec.json.decode(self._ask("look", directory=str(directory)), type=Seen)

    def follow(self, directory: Path, master: Host) -> None:
        """Have a slave's store copy the log of the master at this HA address; RocketMQ only."""
        self._ask("follow", directory=str(directory), master=str(master))

    def end(self, directory: Path) -> int:
        """The end of the log of an open store; RocketMQ only."""
        return msgspec.json.decode(self._ask("end", directory=str(directory)), type=int)

    def read_epochs(self, file: Path) -> list[tuple[int, int]]:
        """What EpochFileCache reads: epochs and starts; RocketMQ only."""
        answer = self._ask("read_epochs", file=str(file))
        return msgspec.json.decode(answer, type=list[tuple[int, int]])

    def write_epochs(self, file: Path, entries: Sequence[tuple[int, int]]) -> None:
        """Have EpochFileCache append entries to its file; RocketMQ only."""
        self._ask("write_epochs", file=str(file), entries=entries)

    def close(self, directories: Sequence[Path]) -> None:
        """Stop these stores cleanly."""
        self._ask("close", directories=[str(directory) for directory in directories])

    def halt(self) -> None:
        """Kill the process; what was open stays as it is."""
        if self._process is not None:
            self._ask("halt")
            self._end()


def differences(before: Seen, after: Seen) -> list[str]:
    """Say what two have seen differently.

    Records of a key count once: 5.3.3 enters the last one again (section 15, 7 of the format).
    """
    found = [] if before.max_physical_offset == after.max_physical_offset else ["the end differs"]
    for old, new in zip_longest(before.messages, after.messages):
        if old != new:
            found.append(f"{old} was seen as {new}")
    for name in sorted({*before.queues, *after.queues}):
        was, is_now = before.queues.get(name), after.queues.get(name)
        if was != is_now:
            found.append(f"queue {name}: {was} was seen as {is_now}")
    for key in sorted({*before.keys, *after.keys}):
        records, now = (set(seen.keys.get(key, ())) for seen in (before, after))
        if records != now:
            found.append(f"key {key}: {records} was seen as {now}")
    return found


def _place(directory: Path, settings: Settings) -> dict[str, Any]:
    return {
        "directory": str(directory),
        "settings": settings.of_rocketmq(),
        "batch_topics": settings.batch_topics,
        "store_host": str(settings.store_host),
    }


def _put_json(message: PutMessage | PutBatch, store_host: Host) -> dict[str, Any]:
    return {
        "batch": isinstance(message, PutBatch),
        "topic": message.topic,
        "queue_id": message.queue_id,
        "body": message.body.hex(),
        "properties": message.properties.decode(),
        "flag": getattr(message, "flag", 0),
        "sys_flag": message.sys_flag,
        "born_timestamp_ms": message.born_timestamp_ms,
        "born_host": str(unpack_host(message.born_host)),
        "store_host": str(store_host),
        "reconsume_times": message.reconsume_times,
        "prepared_transaction_offset": getattr(message, "prepared_transaction_offset", 0),
    }
