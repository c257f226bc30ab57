"""A drill that never happened: ledger and logs made up, with known faults planted in them."""

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from tandem.wire.crc import crc32
from tests.support.log_builder import LogBuilder

TOPIC = "drill"
SYSTEM_TOPIC = "SCHEDULE_TOPIC_XXXX"
MASTER = "broker-a-0"
SLAVES = ("broker-a-1", "broker-a-2")
FILE_BYTES = 65_536
QUEUES = 4
SENDS = 400

LEDGER_SCHEMA = pa.schema(
    [
        ("send_id", pa.string()),
        ("scenario", pa.string()),
        ("phase", pa.string()),
        ("producer", pa.string()),
        ("sequence", pa.int64()),
        ("mode", pa.string()),
        ("topic", pa.string()),
        ("body_crc32", pa.int32()),
        ("body_bytes", pa.int32()),
        ("status", pa.string()),
        ("reason", pa.string()),
        ("offset_msg_id", pa.string()),
        ("queue_id", pa.int32()),
        ("queue_offset", pa.int64()),
        ("physical_offset", pa.int64()),
        ("sent_at_ms", pa.float64()),
        ("answered_at_ms", pa.float64()),
        ("latency_ms", pa.float64()),
        ("attempts", pa.int32()),
    ]
)


class PlantedSend(msgspec.Struct):
    """A send: what the ledger says, and how it gets into the log.

    `own_queue` may be one that no other send has: QUEUES or above.
    """

    number: int
    status: str = "SEND_OK"
    copies: int = 1
    stored_body: bytes | None = None
    answered_offset_shift: int = 0
    queue_offset_skip: int = 0
    attempts: int = 1
    own_queue: int | None = None
    place: tuple[int, int, int] = (-1, -1, -1)

    @property
    def send_id(self) -> str:
        return f"send-{self.number:05d}"

    @property
    def mode(self) -> str:
        return "sync" if self.number % 2 == 0 else "async"

    @property
    def queue_id(self) -> int:
        return self.number // 2 % QUEUES if self.own_queue is None else self.own_queue

    @property
    def body(self) -> bytes:
        return b"body of " + self.send_id.encode() * 10


class PlantedDrill:
    """`sends` are written in this order, `strays` before the last one.

    `damage` is done to the master's finished log, and to the slaves' that have no damage of their
    own.
    """

    def __init__(self) -> None:
        self.sends = [PlantedSend(number) for number in range(SENDS)]
        self.strays: list[tuple[str, bytes]] = []
        self.damage: list[Callable[[LogBuilder], None]] = []
        self.slave_damage: dict[str, Callable[[bytearray], None]] = {}

    def send(self, number: int) -> PlantedSend:
        """The send with this number, wherever it now is in the order."""
        return next(send for send in self.sends if send.number == number)

    def swap(self, one: int, other: int) -> None:
        """Write two sends in each other's place."""
        a, b = self.sends.index(self.send(one)), self.sends.index(self.send(other))
        self.sends[a], self.sends[b] = self.sends[b], self.sends[a]

    def write(self, folder: Path) -> tuple[Path, dict[str, Path]]:
        """Write ledger and stores; return the ledger and the stores by node."""
        log = self._build()
        stores = {node: folder / node for node in (MASTER, *SLAVES)}
        log.write(stores[MASTER])
        for node in SLAVES:
            shutil.copytree(stores[MASTER], stores[node])
            self._damage_slave(node, stores[node] / "commitlog")
        for damage in self.damage:
            damage(log)
        log.write(stores[MASTER])
        if self.damage:
            for node in SLAVES:
                if node not in self.slave_damage:
                    shutil.rmtree(stores[node])
                    shutil.copytree(stores[MASTER], stores[node])
        ledger = folder / "ledger.parquet"
        pq.write_table(pa.Table.from_pylist(self._ledger(), LEDGER_SCHEMA), ledger)
        return ledger, stores

    def _build(self) -> LogBuilder:
        log = LogBuilder(file_bytes=FILE_BYTES)
        log.put(topic="another topic", body=b"not ours", keys="send-00000")
        log.put(topic=SYSTEM_TOPIC, body=b"the broker's own")
        skipped: Counter[int] = Counter()
        offsets: Counter[int] = Counter()
        for send in self.sends:
            if send is self.sends[-1]:
                self._put_strays(log, offsets, skipped)
            for copy in range(send.copies):
                queue = send.queue_id
                skipped[queue] += send.queue_offset_skip
                message = log.put(
                    topic=TOPIC,
                    body=send.body if send.stored_body is None else send.stored_body,
                    keys=send.send_id,
                    queue_id=queue,
                    queue_offset=offsets[queue] + skipped[queue],
                )
                offsets[queue] += 1
                if not copy:
                    send.place = (queue, message.queue_offset, message.physical_offset)
        return log

    def _put_strays(self, log: LogBuilder, offsets: Counter[int], skipped: Counter[int]) -> None:
        for keys, body in self.strays:
            log.put(topic=TOPIC, body=body, keys=keys, queue_offset=offsets[0] + skipped[0])
            offsets[0] += 1

    def _damage_slave(self, node: str, folder: Path) -> None:
        damage = self.slave_damage.get(node)
        if damage is None:
            return
        files = sorted(folder.iterdir())
        log = bytearray(b"".join(file.read_bytes() for file in files))
        damage(log)
        for number, file in enumerate(files):
            file.write_bytes(log[number * FILE_BYTES : (number + 1) * FILE_BYTES])

    def _ledger(self) -> list[dict[str, object]]:
        rows: list[dict[str, object]] = []
        for send in sorted(self.sends, key=lambda send: send.number):
            answered = send.status not in ("UNKNOWN", "REJECTED", "NOT_SENT")
            queue_id, queue_offset, physical_offset = send.place if answered else (-1, -1, -1)
            if queue_offset >= 0:
                queue_offset += send.answered_offset_shift
            rows.append(
                {
                    "send_id": send.send_id,
                    "scenario": "planted",
                    "phase": "only",
                    "producer": f"{send.mode}-1",
                    "sequence": send.number // 2,
                    "mode": send.mode,
                    "topic": TOPIC,
                    "body_crc32": crc32(send.body),
                    "body_bytes": len(send.body),
                    "status": send.status,
                    "reason": "" if send.status == "SEND_OK" else f"because {send.status}",
                    "offset_msg_id": "",
                    "queue_id": queue_id,
                    "queue_offset": queue_offset,
                    "physical_offset": physical_offset,
                    "sent_at_ms": float(send.number),
                    "answered_at_ms": float(send.number) + 0.5,
                    "latency_ms": 0.5,
                    "attempts": send.attempts,
                }
            )
        return rows


def flip(number: int, at: int) -> Callable[[LogBuilder], None]:
    """Damage: flip a bit `at` bytes into the record of this send."""

    def damage(log: LogBuilder) -> None:
        keys = f"send-{number:05d}"
        record = next(m for m in log.messages if m.topic == TOPIC and m.keys == keys)
        log.log[record.physical_offset + at] ^= 0x40

    return damage


def a_lost_sync_send(drill: PlantedDrill) -> dict[str, int]:
    drill.send(20).copies = 0
    return {"sync_lost": 1, "records": -1}


def a_lost_async_send(drill: PlantedDrill) -> dict[str, int]:
    drill.send(21).copies = 0
    return {"async_lost": 1, "records": -1}


def sends_without_a_clear_answer(drill: PlantedDrill) -> dict[str, int]:
    drill.send(30).status = "UNKNOWN"
    drill.send(31).status = "FLUSH_SLAVE_TIMEOUT"
    drill.send(32).status = "SLAVE_NOT_AVAILABLE"
    drill.send(33).status = "UNKNOWN"
    drill.send(33).copies = 0
    return {
        "sync_acknowledged": -2,
        "async_acknowledged": -2,
        "unknown_found": 3,
        "unknown_missing": 1,
        "records": -1,
    }


def a_stored_send_that_is_missing(drill: PlantedDrill) -> dict[str, int]:
    drill.send(40).status = "FLUSH_DISK_TIMEOUT"
    drill.send(40).copies = 0
    return {"sync_acknowledged": -1, "stored_but_missing": 1, "unknown_missing": 1, "records": -1}


def a_duplicated_send(drill: PlantedDrill) -> dict[str, int]:
    drill.send(50).copies = 3
    return {"duplicated": 1, "records": 2}


def a_send_stored_as_often_as_it_was_sent(drill: PlantedDrill) -> dict[str, int]:
    drill.send(52).copies = 2
    drill.send(52).attempts = 2
    return {"stored_again": 1, "records": 1}


def a_send_stored_more_often_than_it_was_sent(drill: PlantedDrill) -> dict[str, int]:
    drill.send(54).copies = 3
    drill.send(54).attempts = 2
    return {"duplicated": 1, "records": 2}


def a_record_that_nobody_sent(drill: PlantedDrill) -> dict[str, int]:
    drill.strays.append(("send-99999", b"never sent"))
    drill.strays.append(("", b"without keys"))
    return {"phantom": 2, "records": 2}


def a_record_with_another_body(drill: PlantedDrill) -> dict[str, int]:
    drill.send(60).stored_body = b"something else"
    return {"phantom": 1, "sync_lost": 1}


def a_refused_send_that_was_stored(drill: PlantedDrill) -> dict[str, int]:
    drill.send(70).status = "REJECTED"
    drill.send(71).status = "NOT_SENT"
    drill.send(72).status = "NOT_SENT"
    drill.send(72).copies = 0
    return {"sync_acknowledged": -2, "async_acknowledged": -1, "phantom": 2, "records": -1}


def a_misplaced_send(drill: PlantedDrill) -> dict[str, int]:
    drill.send(80).answered_offset_shift = 5
    return {"misplaced": 1}


def two_sends_in_the_wrong_order(drill: PlantedDrill) -> dict[str, int]:
    drill.swap(90, 90 + 2 * QUEUES)
    return {"out_of_order": 1}


def a_queue_offset_left_out(drill: PlantedDrill) -> dict[str, int]:
    drill.send(100).queue_offset_skip = 1
    return {"out_of_order": 1}


def a_corrupt_body(drill: PlantedDrill) -> dict[str, int]:
    drill.damage.append(flip(110, 100))
    return {"corrupt": 1}


def a_corrupt_body_of_the_broker(drill: PlantedDrill) -> dict[str, int]:
    """In a record that no consumer sees."""

    def damage(log: LogBuilder) -> None:
        record = next(m for m in log.messages if m.topic == SYSTEM_TOPIC)
        log.log[record.physical_offset + 90] ^= 0x40

    drill.damage.append(damage)
    return {"corrupt": 1}


def a_corrupt_header(drill: PlantedDrill) -> dict[str, int]:
    """The record is gone: its send is lost, and its queue has a gap."""
    drill.damage.append(flip(120, 5))
    return {"corrupt": 1, "sync_lost": 1, "out_of_order": 1, "records": -1}


def a_torn_tail(drill: PlantedDrill) -> dict[str, int]:
    def cut(log: LogBuilder) -> None:
        del log.log[log.messages[-1].physical_offset + 100 :]

    drill.damage.append(cut)
    return {"corrupt": 1, "async_lost": 1, "records": -1}


def a_slave_that_diverged(drill: PlantedDrill) -> dict[str, int]:
    def flip_one(log: bytearray) -> None:
        log[70_000] ^= 1

    drill.slave_damage[SLAVES[0]] = flip_one
    return {"slaves_not_identical": 1}


def a_slave_that_is_behind(drill: PlantedDrill) -> dict[str, int]:
    def forget(log: bytearray) -> None:
        at = 2000
        at = log.index(b"\xda\xa3\x20\xa7", at) - 4
        log[at:] = bytes(len(log) - at)

    drill.slave_damage[SLAVES[1]] = forget
    return {"slaves_not_identical": 1}


PLANTS: tuple[Callable[[PlantedDrill], dict[str, int]], ...] = (
    a_lost_sync_send,
    a_lost_async_send,
    sends_without_a_clear_answer,
    a_stored_send_that_is_missing,
    a_duplicated_send,
    a_send_stored_as_often_as_it_was_sent,
    a_send_stored_more_often_than_it_was_sent,
    a_record_that_nobody_sent,
    a_record_with_another_body,
    a_refused_send_that_was_stored,
    a_misplaced_send,
    two_sends_in_the_wrong_order,
    a_queue_offset_left_out,
    a_corrupt_body,
    a_corrupt_body_of_the_broker,
    a_corrupt_header,
    a_torn_tail,
    a_slave_that_diverged,
    a_slave_that_is_behind,
)
"""Each plants its fault and returns by how much that changes each count of the summary."""
