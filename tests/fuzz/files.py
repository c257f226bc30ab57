"""Decoders of every kind of file, in this process: what they may say is one of their own errors."""

import random
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, ClassVar, Final

import msgspec

from ha.errors import HAError
from ha.fenced.epoch_file import decode as decode_epochs
from ha.fenced.epoch_file import encode as encode_epochs
from ha.fenced.epochs import EpochEntry
from ha.fenced.healed_parts import HealedParts
from ha.fenced.replica_file import ReplicaFile
from node.errors import NodeError
from node.tables.consumer_offset_table import ConsumerOffsetTable
from node.tables.journal.journal_file import JournalFile
from node.tables.journal.journal_records import JOURNAL_FORMAT
from node.tables.subscription_group_table import SubscriptionGroupTable
from store.delayed.delay_offset_table import DelayOffsetSerializeWrapper
from store.log.damage import BadRange, LogDamage
from store.log.fingerprints import Fingerprints
from store.log.log_start import LogStart
from store.machine.errors import StoreError
from store.machine.kept_files import KeptFiles
from store.machine.table_file import TableFile
from store.recovery.truncation import pending_intent
from store.services.scrub_service import ScrubProgress
from tandem.cluster.spec import read_spec
from tandem.cluster_file.errors import ClusterError
from tandem.cluster_file.secret_file import secret_in
from tandem.coordinator.interface import CoordinatorError
from tandem.coordinator.journal import Journal
from tandem.coordinator.kv import KeyValueStore
from tandem.coordinator.kv_records import Condition, PutOperation, Relation, Target
from tandem.drill.errors import DrillError
from tandem.drill.scenario_file import parse_scenario
from tandem.log.dump import dump_records
from tandem.log.errors import LogToolError
from tandem.log.listing import list_store
from tandem.log.record_filter import RecordFilter
from tandem.log.stat import store_stat
from tandem.log.store_directory import open_store_directory
from tandem.log.verify import verify_store
from tandem.wire.batch_body import decode_batch_body
from tandem.wire.checkpoint_copy import COPY_AT, copy_of, settled
from tandem.wire.checksum_line import (
    decode_checked_json,
    encode_checked_json,
    with_checksum,
    without_checksum,
)
from tandem.wire.errors import WireError
from tandem.wire.fingerprint import BLOCK_BYTES, Fingerprint
from tandem.wire.group_state import GroupState, decode_state, encode_record
from tandem.wire.ha_status import HealedPart
from tandem.wire.message import decode_messages
from tandem.wire.peer_log import EpochPart, FileFingerprint, PeerLogPart
from tandem.wire.record_check import check_records
from tandem.wire.request_headers import TopicConfig, TopicConfigSerializeWrapper
from tandem.wire.route import decode_json_body
from tests.fuzz import hostile
from tests.store.mutations_of_files import Specimen, check_hostile, mutate, specimens
from tests.support.paths import ROOT

EXPECTED: Final = (
    *(WireError, StoreError, NodeError, HAError, CoordinatorError, ClusterError, DrillError),
    LogToolError,
)
"""Each of them is a line that names the file. The epoch file alone raises ValueError, to its
reader."""

SLOW: Final = ("cluster.yaml", "scenario")

GOLDEN: Final = ROOT / "tests" / "data" / "rocketmq-5.3.3"


class UnexpectedError(Exception):
    """A decoder raised what none may raise."""


class _OneFile:
    """A disk on which every file has the same content."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.kept = KeptFiles()

    def read(self, path: str = "") -> bytes:
        return self._data

    def append(self, data: bytes) -> None:
        pass

    def modified_ms(self, _path: str) -> int:
        return 0

    def replace(self, *_: object) -> None:
        pass

    def remove(self, _path: str) -> None:
        pass

    def exists(self, _path: str) -> bool:
        return True

    def list_files(self, _path: str) -> list[tuple[str, int]]:
        return [(f"{0:020d}", len(self._data))]

    def cut(self, size: int) -> None:
        self._data = self._data[:size]


class FileDecoders:
    """Files that are right, made wrong, and read; `batch` is an attacker's."""

    FILES: ClassVar = 200

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(exist_ok=True)
        rows = self._small_files()
        self._slow = [row for row in rows if row[0] in SLOW]
        self._quick = [row for row in rows if row[0] not in SLOW]
        self._specimens: list[Specimen] = []

    @property
    def rows(self) -> list[tuple[str, bytes, Callable[[bytes], object]]]:
        """Name, content that is right, and what reads it."""
        return [*self._quick, *self._slow]

    def batch(self, chance: Random, number: int) -> int:
        """Many small files, and a store now and then.

        Raises:
            UnexpectedError: see there.
        """
        for _ in range(self.FILES):
            # YAML takes a hundred times as long as all others.
            rows = self._slow if chance.random() < 0.02 else self._quick
            name, sample, decode = chance.choice(rows)
            data = sample
            for _ in range(chance.choice((1, 1, 2, 4))):
                data = hostile.broken(chance, data)
            if sample[:1] == b"{" and chance.random() < 0.5:
                try:
                    template = msgspec.json.decode(sample)
                except msgspec.DecodeError:
                    template = {}
                data = hostile.json_of(chance, template)
            self._read(name, data, partial(decode, data))
        if number % 20 == 0:
            self._read_store(chance)
        if number % 50 == 0:
            self._read_by_tools(chance)
        return self.FILES

    def _read(self, name: str, data: bytes, read: Callable[[], object]) -> None:
        try:
            read()
        except EXPECTED:
            pass
        except Exception as error:
            path = self._directory / "unexpected"
            path.write_bytes(data)
            shown = data[:200]
            raise UnexpectedError(
                f"{name}: {type(error).__name__}: {error}; read {shown!r}"
            ) from error

    def _read_store(self, chance: Random) -> None:
        """Open a whole store of which something is wrong, and use it."""
        if not self._specimens:
            self._specimens = specimens()
        specimen = chance.choice(self._specimens)
        specimen, done = mutate(specimen, chance)
        self._read(f"store {specimen.name}: {done}", b"", lambda: check_hostile(specimen))

    def _read_by_tools(self, chance: Random) -> None:
        """What `tandem log` does to such a store."""
        if not self._specimens:
            self._specimens = specimens()
        specimen, done = mutate(chance.choice(self._specimens), chance)
        root = self._directory / "store"
        _empty(root)
        for path, content in specimen.files.items():
            place = root / path.strip("/").partition("/")[2]
            place.parent.mkdir(parents=True, exist_ok=True)
            if not place.is_dir():
                place.write_bytes(content)

        def look() -> None:
            store = open_store_directory(root)
            list_store(store)
            store_stat(store)
            verify_store(store)
            for _ in dump_records(store, RecordFilter()):
                pass

        self._read(f"log tools, {specimen.name}: {done}", b"", look)

    def _small_files(self) -> list[tuple[str, bytes, Callable[[bytes], object]]]:
        yaml_file = self._directory / "cluster.yaml"

        def cluster_file(data: bytes) -> None:
            yaml_file.write_bytes(data)
            read_spec(yaml_file)

        scenario = next((ROOT / "tandem" / "drill").rglob("*.yaml"), None)
        log = (GOLDEN / "basic" / "commitlog" / "00000000000000000000").read_bytes()[:2000]
        config = GOLDEN / "config-json" / "config"
        found: list[tuple[str, bytes, Callable[[bytes], object]]] = [
            ("log", log, lambda data: check_records(data, 0, 0, len(data), check_crc=True)),
            ("records", log[:300], decode_messages),
            ("batch", log[:100], lambda data: list(decode_batch_body(data))),
            ("epochFileCheckpoint", encode_epochs(_EPOCHS), _epochs),
            (
                "replica.json",
                _REPLICA,
                lambda data: ReplicaFile(_disk(data), "d", random.Random(1)),
            ),
            (
                "topics.json",
                (config / "topics.json").read_bytes(),
                lambda data: _table(data).load(TopicConfigSerializeWrapper),
            ),
            (
                "consumerOffset.json",
                (config / "consumerOffset.json").read_bytes(),
                lambda data: ConsumerOffsetTable(_table(data), lambda: 0).encode(),
            ),
            (
                "subscriptionGroup.json",
                (config / "subscriptionGroup.json").read_bytes(),
                lambda data: SubscriptionGroupTable(_table(data), lambda: 0),
            ),
            (
                "delayOffset.json",
                b'{"dataVersion":{"counter":1},"offsetTable":{1:5,2:7}}',
                lambda data: _table(data).load(DelayOffsetSerializeWrapper),
            ),
            (
                "groupJournal.json",
                _JOURNAL_STATE,
                lambda data: JournalFile(_disk(data), "d").load(),
            ),
            ("journal record", _JOURNAL_RECORD, JOURNAL_FORMAT.decode_record),
            ("truncate.json", _INTENT, lambda data: pending_intent(_disk(data), "d")),
            ("damage.json", _DAMAGE, _damage),
            ("log-start.json", _START, lambda data: LogStart(_disk(data), "d", 7)),
            ("healed.json", _HEALED, lambda data: HealedParts(_disk(data), "d")),
            ("scrub.json", _SCRUB, lambda data: decode_checked_json("scrub.json", data, _PROGRESS)),
            ("00000000000000000000", _FINGERPRINT, _fingerprint),
            ("checkpoint", _CHECKPOINT, lambda data: settled(data[:4096].ljust(4096, b"\0"), 6)),
            ("secret", with_checksum("secret", b"0123456789abcdef" * 4), secret_in),
            ("answer to LOG_FINGERPRINTS", _PART, lambda data: decode_json_body(data, PeerLogPart)),
            ("small file", _INTENT, lambda data: without_checksum("truncate.json", data)),
            ("coordinator's journal", _coordinator_journal(), _restored),
            ("group state", encode_record(_STATE), decode_state),
            ("cluster.yaml", (ROOT / "cluster.yaml").read_bytes(), cluster_file),
            ("cluster.yaml", _SMALL_CLUSTER, cluster_file),
        ]
        if scenario is not None:
            found.append(("scenario", scenario.read_bytes(), _scenario))
        return found


_EPOCHS: Final = (EpochEntry(1, 0), EpochEntry(3, 8192), EpochEntry(4, 70_000))
_STATE: Final = GroupState(epoch=3, master="a", isr={"a": "1", "b": "2"}, min_isr=2)
_REPLICA: Final = with_checksum(
    "replica.json",
    b'{"incarnation":"00f","promised":3,"acked":70000,"seen_epoch":3,"seen_version":1,"boot_id":"b",'
    b'"is_clean":true,"has_failed":false,"ack_level":"written","stands_back_until":1.5}\n',
)
_TOPIC: Final = TopicConfig("T")
_JOURNAL_STATE: Final = msgspec.json.encode(
    {"position": 7, "topics": [_TOPIC], "offsets": {"T@g": {0: 5}}, "delay": {1: 2}}
)
_JOURNAL_RECORD: Final = msgspec.json.encode(
    {
        "type": "snapshot",
        "part": 0,
        "parts": 1,
        "topics": [_TOPIC],
        "offsets": {"T@g": {0: 5}},
        "delay": {1: 2},
        "version": 1,
    }
)
_INTENT: Final = b'{"cut":8192,"reason":"r","files":{"a.json":"x"},"side_name":"s","is_saved":true}'
_SMALL_CLUSTER: Final = (
    b"cluster:\n  name: c\ngroups:\n  a:\n    kind: fenced\n  b: {broker_role: ASYNC_MASTER}\n"
    b"nodes:\n"
    + b"".join(
        b"  - {name: a-%d, group: a, broker_id: %d, address: 127.0.0.%d}\n" % (n, n, n)
        for n in (1, 2, 3)
    )
    + b"  - name: b-0\n    group: b\n    broker_id: 0\n    address: 127.0.0.9\n    port: 10911\n"
)


_DAMAGE: Final = encode_checked_json(
    "damage.json", [BadRange(5, 70, "scrub", 1), BadRange(100, 200, "reader", 2)]
)
_START: Final = encode_checked_json("log-start.json", {"start": 0, "lock_modified_ms": 7, "era": 7})
_HEALED: Final = encode_checked_json("healed.json", [HealedPart(0, 65_536, "b", "scrub", 1)])
_SCRUB: Final = encode_checked_json("scrub.json", ScrubProgress(5, 4, 65_536, 262_144))
_PROGRESS: Final = ScrubProgress
_FINGERPRINT: Final = encode_checked_json(
    f"{0:020d}", Fingerprint(0, 3 * BLOCK_BYTES - 5, bytes(12), BLOCK_BYTES, 7)
)
_NUMBERS: Final = (1, 2, 3, 4, 5, 6)
_CHECKPOINT: Final = (
    struct.pack(">6q", *_NUMBERS).ljust(COPY_AT, b"\0") + copy_of(_NUMBERS)
).ljust(4096, b"\0")
_PART: Final = msgspec.json.encode(
    PeerLogPart(
        node="b",
        log_start=0,
        confirm=700,
        epochs=(EpochPart(1, 0, "a"), EpochPart(3, 500)),
        bad=((5, 70),),
        fingerprint=FileFingerprint(start=0, size=65_536, crcs=bytes(4), written_from=0),
    )
)


def _damage(data: bytes) -> None:
    damage = LogDamage(_disk(data), "d")
    damage.within(0, 1 << 40)
    damage.note(50, 60, "fuzz")
    damage.healed(0, 1 << 62)


def _fingerprint(data: bytes) -> None:
    found = Fingerprints(_disk(data), "d", era=7).of(0)
    if found is not None:
        assert found.is_consistent
        found.differing(found.start, bytes(min(found.size, 2 * BLOCK_BYTES)))


def _disk(data: bytes) -> Any:  # noqa: ANN401 - a disk, as far as it is used
    return _OneFile(data)


def _table(data: bytes) -> TableFile:
    return TableFile(_disk(data), "config/table.json")


def _epochs(data: bytes) -> None:
    try:
        decode_epochs(data)
    except ValueError as error:
        if type(error) is not ValueError:
            raise


def _scenario(data: bytes) -> None:
    parse_scenario(data.decode(errors="replace"), "fuzz", "fuzz.yaml")


def _coordinator_journal() -> bytes:
    written: list[bytes] = []

    class Kept(_OneFile):
        def write(self, _position: int, data: bytes) -> None:
            written.append(data)

        def replace(self, *arguments: object) -> None:
            written[:] = [data for data in arguments if isinstance(data, bytes)]

        def close(self) -> None:
            pass

    journal = Journal(Kept(b""))
    store = KeyValueStore(on_change=journal.record)
    journal.restore(store, 0.0)
    for number in range(5):
        store.grant(number + 1, 5, 0.0)
        key = f"/tandem/{number}".encode()
        missing = Condition(key, Target.MOD, Relation.EQUAL, 0)
        store.transact([missing], [PutOperation(key, b"value", number + 1)], [], 0.0)
        write = journal.take(store)
        write.to_disk()
        journal.settle(write)
    return b"".join(written)


def _restored(data: bytes) -> None:
    Journal(_disk(data)).restore(KeyValueStore(), 0.0)


def _empty(directory: Path) -> None:
    if directory.exists():
        for path in sorted(directory.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
    directory.mkdir(exist_ok=True)
