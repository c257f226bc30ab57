"""Our store at the other end of a pipe: what `java/StoreProbe.java` is for RocketMQ's.

Its services run while it waits, as in a node: the next log file is prepared, the index follows,
and things are flushed. `halt` is a SIGKILL.
"""

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import msgspec
import trio

from store import MessageStore, PutBatch, PutMessage, StoreConfig
from store.machine.errors import StoreError
from store.machine.real_disk import RealDisk
from tandem.wire.message import Host, MessageExt, decode_message, decode_messages
from tests.compat.probe import Loaded, Seen, SeenMessage, SeenQueue
from tests.store.store_world import log_messages


class StoreProbe:
    """Answers commands. Stores run in `nursery`."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._stores: dict[str, MessageStore] = {}
        self._scopes: dict[str, trio.CancelScope] = {}

    async def answer(self, command: dict[str, Any]) -> object:
        """Do what `command` says."""
        match command["do"]:
            case "open":
                return await self._open(command)
            case "load":
                return _load(command)
            case "put":
                return await self._put(command)
            case "look":
                return look(self._stores[command["directory"]])
            case "close":
                for directory in command["directories"]:
                    self._scopes.pop(directory).cancel()
                    self._stores.pop(directory).close()
                return True
            case _:
                os.kill(os.getpid(), signal.SIGKILL)
                return None

    async def _open(self, command: dict[str, Any]) -> bool:
        try:
            store = _opened(command)
        except StoreError as error:
            sys.stderr.write(f"{error}\n")
            return False
        self._stores[command["directory"]] = store
        self._scopes[command["directory"]] = await self._nursery.start(_run, store)
        return True

    async def _put(self, command: dict[str, Any]) -> list[str]:
        store = self._stores[command["directory"]]
        statuses = []
        for message in command["messages"]:
            statuses.append(_put(store, message))
            store.announce()
            await trio.lowlevel.checkpoint()
        return statuses


async def _run(
    store: MessageStore,
    *,
    task_status: trio.TaskStatus[trio.CancelScope] = trio.TASK_STATUS_IGNORED,
) -> None:
    with trio.CancelScope() as scope:
        task_status.started(scope)
        await store.run()


def _opened(command: dict[str, Any]) -> MessageStore:
    settings = command["settings"]
    return MessageStore.open(
        StoreConfig(
            directory=command["directory"],
            mapped_file_size_commit_log_bytes=settings["mappedFileSizeCommitLog"],
            mapped_file_size_consume_queue_bytes=settings["mappedFileSizeConsumeQueue"],
            mapper_file_size_batch_consume_queue_bytes=settings["mapperFileSizeBatchConsumeQueue"],
            mapped_file_size_consume_queue_ext_bytes=settings["mappedFileSizeConsumeQueueExt"],
            max_hash_slot_num=settings["maxHashSlotNum"],
            max_index_num=settings["maxIndexNum"],
            enabled_append_prop_crc=settings["enabledAppendPropCRC"],
            force_verify_prop_crc=settings["forceVerifyPropCRC"],
            enable_consume_queue_ext=settings["enableConsumeQueueExt"],
        ),
        disk=RealDisk(),
        wall_clock_ms=lambda: time.time_ns() // 1_000_000,
        store_host=_host(command["store_host"]),
        is_slave=False,
        is_batch_topic=lambda topic: topic in command["batch_topics"],
    )


def _host(text: str) -> Host:
    ip, _, port = text.rpartition(":")
    return Host(ip.strip("[]"), int(port))


def _load(command: dict[str, Any]) -> Loaded | None:
    try:
        store = _opened(command)
    except StoreError as error:
        sys.stderr.write(f"{error}\n")
        return None
    with store:
        ends = {f"{t} {q}": store.reads.max_offset_in_queue(t, q) for t, q in store.list_queues()}
        return Loaded(store.max_physical_offset, ends)


def _put(store: MessageStore, message: dict[str, Any]) -> str:
    message["body"] = bytes.fromhex(message["body"])
    message["properties"] = message["properties"].encode()
    message["born_host"] = _host(message["born_host"]).packed
    if message["batch"]:
        return store.puts.put_batch(msgspec.convert(message, PutBatch)).status.name
    # Delayed messages come as they are stored; the store has its own host.
    put = msgspec.convert({**message, "store_host": b""}, PutMessage)
    return store.puts.put_message(put, hooks=False).status.name


def look(store: MessageStore) -> Seen:
    """Read everything there is, in every way there is."""
    while store.reput_service.is_index_behind:
        store.reput_service.index_some()
    messages = log_messages(store)
    for message in messages:
        record = store.reads.look_message_by_offset(message.physical_offset)
        assert record is not None
        assert decode_message(record, 0)[0] == message
    return Seen(
        max_physical_offset=store.max_physical_offset,
        messages=[_seen(message) for message in messages],
        queues={f"{t} {q}": _queue(store, t, q) for t, q in store.list_queues()},
        keys={
            f"{topic} {key}": _query(store, topic, key)
            for topic, key in {(m.topic, key) for m in messages for key in _keys(m)}
        },
    )


def _seen(message: MessageExt) -> SeenMessage:
    return SeenMessage(
        topic=message.topic,
        queue_id=message.queue_id,
        queue_offset=message.queue_offset,
        physical_offset=message.physical_offset,
        store_size=message.store_size,
        flag=message.flag,
        sys_flag=message.sys_flag,
        born_ms=message.born_timestamp_ms,
        born_host=message.born_host.packed.hex(),
        stored_ms=message.store_timestamp_ms,
        reconsume_times=message.reconsume_times,
        prepared_transaction_offset=message.prepared_transaction_offset,
        msg_id=message.offset_msg_id,
        body=message.body.hex(),
        properties=message.properties,
    )


def _queue(store: MessageStore, topic: str, queue_id: int) -> SeenQueue:
    start, end = (
        store.reads.min_offset_in_queue(topic, queue_id),
        store.reads.max_offset_in_queue(topic, queue_id),
    )
    offsets = []
    offset = start
    while offset < end:
        result = store.reads.get_message(topic, queue_id, offset, 32)
        assert result.next_begin_offset > offset, result
        offsets += [m.physical_offset for view in result.body for m in decode_messages(view)]
        offset = result.next_begin_offset
    return SeenQueue(start, end, offsets)


def _keys(message: MessageExt) -> Iterator[str]:
    yield from message.keys.split()
    if unique := message.properties.get("UNIQ_KEY"):
        yield unique


def _query(store: MessageStore, topic: str, key: str) -> list[int]:
    found = store.reads.query_message(topic, key, 64).records
    return [decode_message(record, 0)[0].physical_offset for record in found]


async def main() -> None:
    """Read commands, write answers."""
    async with trio.open_nursery() as nursery:
        probe = StoreProbe(nursery)
        # Killed in the end; a pipe that ends first is the same.
        while line := await trio.to_thread.run_sync(sys.stdin.buffer.readline):
            answer = await probe.answer(msgspec.json.decode(line))
            sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
            sys.stdout.buffer.flush()
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    with suppress(BrokenPipeError):
        trio.run(main)
