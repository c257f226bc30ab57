"""Gathers what store directories hold of one message: `tandem why --store DIR`.

    commitlog                        the message, its retries, dead letters, halves and delays
    truncated/<20 digits>-<name>     what was cut off after a change of master
    set-aside/<name>/commitlog       whole logs that were moved away
    epochFileCheckpoint              which master wrote which part
    config/                          how far groups are, and delays

Keys are looked up in the index files for every topic that has queues; what they do not cover is
read, and with `use_index=False` all of it is.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from tandem.data_file import DataFile
from tandem.life.evidence import Copy, Epoch, Evidence, HalfEnd, HalvesRead, Held, Look, NodeLog
from tandem.life.lives import LIVES_MAX, fits, why_of
from tandem.life.made_id import offset_id_of
from tandem.life.records import Record, Role, records_of, role_of
from tandem.life.result import Why
from tandem.life.words import time_words
from tandem.log.dump import DumpedRecord, dump_records
from tandem.log.epoch_list import epochs_of
from tandem.log.errors import LogToolError, NotAStoreError
from tandem.log.files import open_file
from tandem.log.life_tables import gather_delays, gather_tables
from tandem.log.log_scan import LogDamage, LogWindow, log_extent, record_at, scan_log
from tandem.log.record_filter import Range, RecordFilter
from tandem.log.store_directory import StoreDirectory, open_store_directory
from tandem.wire.crc import crc32
from tandem.wire.ended_halves import ended_halves
from tandem.wire.errors import MalformedMessageError
from tandem.wire.message import MessageExt, decode_message
from tandem.wire.message_properties import PROPERTY_UNIQUE_KEY
from tandem.wire.store_layout import (
    FILE_NAME_DIGITS,
    OFFSET_MAX,
    SET_ASIDE_DIRECTORY,
    SIDE_DIRECTORY,
    offset_named,
)
from tandem.wire.system_topics import (
    DLQ_GROUP_TOPIC_PREFIX,
    RETRY_GROUP_TOPIC_PREFIX,
    RMQ_SYS_TRANS_HALF_TOPIC,
    RMQ_SYS_TRANS_OP_HALF_TOPIC,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    TRANS_CHECK_MAX_TIME_TOPIC,
)
from tandem.wire.untrusted import UnreadableError, decode_json

PIECES_MAX: Final = 1_000
"""Of what was cut off one log."""

_WAITING: Final = (
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    RMQ_SYS_TRANS_HALF_TOPIC,
    TRANS_CHECK_MAX_TIME_TOPIC,
)
_CUT_NAME: Final = re.compile(rf"(\d{{{FILE_NAME_DIGITS}}})-.+")


class _CutNote(msgspec.Struct, frozen=True):
    """What is in the .json beside a piece that was cut off."""

    reason: str = ""


class _Piece(msgspec.Struct, frozen=True):
    """A log, or a part of one: the files, and what became of it."""

    files: tuple[DataFile, ...]
    held: Held
    where: str
    why: str = ""
    store: StoreDirectory | None = None


def why_in_stores(
    directories: Sequence[str | Path],
    message: str,
    topic: str = "",
    *,
    now_ms: int,
    use_index: bool = True,
) -> Why:
    """Return the life of a message as store directories show it, each finding with its evidence.

    `message` is its unique key, its offset id, or one of its keys. Nodes may have the stores open.
    That nothing is found is no error: the answer says what was read, and what that proves.

    Raises:
        NotAStoreError: a directory is none.
        UnreadableFileError: the system refuses a file.
    """
    evidence = Evidence(message=message, topic=topic, now_ms=now_ms)
    stores = [_Store(Path(each), evidence, use_index=use_index) for each in directories]
    for store in stores:
        store.find(message)
    _keep_topic(evidence, topic)
    found = [each for each in evidence.copies if fits(each, message)]
    found.sort(key=lambda each: each.message.store_timestamp_ms)
    families = list(dict.fromkeys(each.family for each in found))
    evidence.families_left_out = max(0, len(families) - LIVES_MAX)
    families = families[-LIVES_MAX:]
    evidence.copies = [each for each in evidence.copies if each.family in families]
    for store in stores:
        store.follow(families)
    return why_of(evidence)


def _keep_topic(evidence: Evidence, topic: str) -> None:
    """Leave out messages that were sent to other topics than the one that was named."""
    if not topic:
        return
    topics: dict[str, set[str]] = {}
    for record in records_of(evidence.copies, evidence.topics_known):
        topics.setdefault(record.copies[0].family, set()).update(
            (record.real_topic, record.message.topic, record.origin_topic)
        )
    evidence.copies = [each for each in evidence.copies if topic in topics[each.family]]


class _Store:
    """One directory, for one question."""

    def __init__(self, root: Path, evidence: Evidence, *, use_index: bool) -> None:
        self._root = root
        self._node = str(root)
        self._evidence = evidence
        self._use_index = use_index
        self._store = open_store_directory(root)
        log = _Piece(self._store.commit_log, Held.LOG, f"{root}/commitlog", store=self._store)
        self._pieces = [log, *_cut_pieces(root, evidence), *_set_aside(root, evidence)]
        self._searched: set[str] = set()
        self._added: set[tuple[str, int]] = set()
        self._log = _node_log(self._node, self._store)
        evidence.nodes.append(self._log)
        known = {*(queue.topic for queue in self._store.queues), *(self._store.topics or ())}
        evidence.topics_known |= {each for each in known if role_of(each) is Role.ORIGINAL}

    def find(self, message: str) -> None:
        """Look for the message itself."""
        self._by_place(message)
        self._by_key(message)

    def follow(self, families: list[str]) -> None:
        """Look for all records of some messages, and for what is done with them."""
        keys = {
            each.message.properties.get(PROPERTY_UNIQUE_KEY, "")
            for each in self._evidence.copies
            if each.family in families
        }
        for key in sorted(keys - {""}):
            self._by_key(key)
        copies = [each for each in self._evidence.copies if each.family in families]
        records = records_of(copies, self._evidence.topics_known)
        self._ends(records)
        topics = {each.message.topic for each in records if each.role is Role.ORIGINAL}
        topics |= {each.real_topic for each in records if each.role is not Role.DEAD}
        topics |= {each.origin_topic for each in records}
        if topics - {""}:
            gather_tables(self._evidence, self._node, self._root, topics - {""})
        if any(each.role is Role.DELAYED for each in records):
            gather_delays(self._evidence, self._node, self._root)

    def _by_place(self, message: str) -> None:
        wanted = offset_id_of(message)
        if wanted is None:
            return
        for piece in self._pieces:
            found = 0
            for stored, source in _at(piece, wanted.offset):
                if stored.offset_msg_id == message.upper():
                    found += self._add(piece, stored, source)
                else:
                    self._evidence.others.append(self._copy(piece, stored, source))
            self._look(piece, f"the record at offset {wanted.offset}", found)

    def _by_key(self, key: str) -> None:
        """Look for a unique key, or one of the keys, in every topic."""
        if key in self._searched:
            return
        self._searched.add(key)
        for piece in self._pieces:
            found, is_complete = 0, True
            how = "by key, all records"
            if piece.store is not None and self._use_index and piece.store.index_files:
                how = "by key, index files and what they do not cover"
            for item in self._dumped(piece, key):
                if isinstance(item, LogDamage):
                    is_complete = is_complete and item.kind == "torn"
                    self._damaged(item)
                    continue
                source = f"{_file_of(piece, item.message)}, offset {item.message.physical_offset}"
                found += self._add(piece, item.message, source)
            self._look(piece, how, found, is_complete=is_complete)

    def _dumped(self, piece: _Piece, key: str) -> Iterator[DumpedRecord | LogDamage]:
        try:
            key.encode()
        except UnicodeEncodeError:
            return
        store = piece.store
        wanted = RecordFilter(key=key)
        if store is not None and self._use_index and store.index_files:
            wanted = RecordFilter(key=key, topics=_topics(store))
        if store is None:
            store = msgspec.structs.replace(
                self._store, commit_log=piece.files, index_files=(), queues=()
            )
        yield from dump_records(store, wanted, use_index=self._use_index)

    def _damaged(self, damage: LogDamage) -> None:
        if damage.kind == "torn":
            return
        self._evidence.gap(
            f"{damage.file} from position {damage.position} on",
            f"it is damaged: {damage.reason}",
            "`tandem log verify` and `tandem log repair`",
        )

    def _copy(self, piece: _Piece, message: MessageExt, source: str) -> Copy:
        return Copy(
            node=self._node,
            broker="",
            source=source,
            held=piece.held,
            message=message,
            is_sound=not message.body or crc32(message.body) == message.body_crc,
            why_held=piece.why,
        )

    def _add(self, piece: _Piece, message: MessageExt, source: str) -> int:
        place = piece.where, message.physical_offset
        if place in self._added:
            return 0
        self._added.add(place)
        self._evidence.copies.append(self._copy(piece, message, source))
        return 1

    def _look(self, piece: _Piece, how: str, found: int, *, is_complete: bool = True) -> None:
        start = piece.files[0].offset if piece.files else 0
        end = self._log.end if piece.held is Held.LOG else _end_of(piece)
        covers = f"offsets {start} to {end}"
        if piece.held is Held.LOG and self._log.first_store_ms:
            covers += f", from {time_words(self._log.first_store_ms)}"
            covers += f" to {time_words(self._log.last_store_ms)}"
        look = Look(where=piece.where, how=how, found=found, covers=covers, is_complete=is_complete)
        if found or look not in self._evidence.looks:
            self._evidence.looks.append(look)

    def _ends(self, records: list[Record]) -> None:
        """Read which halves have ended since the last half of the message was stored."""
        halves = [each for each in records if each.role is Role.HALF and self._node in each.nodes]
        if not halves:
            return
        start = halves[-1].message.physical_offset
        wanted = RecordFilter(
            topics=frozenset({RMQ_SYS_TRANS_OP_HALF_TOPIC}), physical_offsets=Range(start)
        )
        is_complete = True
        for item in dump_records(self._store, wanted):
            if isinstance(item, LogDamage):
                is_complete = is_complete and item.kind == "torn"
                continue
            source = f"{RMQ_SYS_TRANS_OP_HALF_TOPIC}, queue offset {item.message.queue_offset}"
            self._evidence.ends += [
                HalfEnd(
                    broker="",
                    node=self._node,
                    half_queue_offset=offset,
                    at_ms=item.message.store_timestamp_ms,
                    source=f"{source}, of {self._node}",
                )
                for offset in ended_halves(item.message)
            ]
        self._evidence.halves_read.append(
            HalvesRead(broker="", node=self._node, is_complete=is_complete)
        )


def _topics(store: StoreDirectory) -> frozenset[str]:
    """Return every topic that a store is known to have: only they can be looked up."""
    queued = {queue.topic for queue in store.queues}
    retries = {
        topic.replace(RETRY_GROUP_TOPIC_PREFIX, DLQ_GROUP_TOPIC_PREFIX, 1) for topic in queued
    }
    return frozenset({*queued, *retries, *(store.topics or ()), *_WAITING})


def _node_log(node: str, store: StoreDirectory) -> NodeLog:
    extent = log_extent(store.commit_log)
    epochs = epochs_of(store.path) or {}
    return NodeLog(
        node=node,
        broker="",
        source=f"{store.path}, its files",
        start=extent.start,
        end=extent.end,
        first_store_ms=_first_time(store.commit_log),
        last_store_ms=extent.last_store_timestamp_ms,
        epochs=tuple(Epoch(epoch, start, name) for (epoch, start), name in epochs.items()),
    )


def _first_time(files: Sequence[DataFile]) -> int:
    for item in scan_log(files):
        if isinstance(item, LogWindow) and len(item.columns):
            return int(item.columns.store_timestamp_ms[0])
    return 0


def _at(piece: _Piece, offset: int) -> Iterator[tuple[MessageExt, str]]:
    """Yield the record at an offset of a log, if there is a sound one."""
    for file in piece.files:
        if not file.offset <= offset < file.end_offset:
            continue
        with open_file(file.path) as descriptor:
            window = record_at(descriptor, file, offset - file.offset)
        if window is None:
            continue
        try:
            message, _ = decode_message(window.data)
        except MalformedMessageError:
            continue
        yield message, f"{file.path}, offset {offset}"


def _file_of(piece: _Piece, message: MessageExt) -> str:
    place = message.physical_offset
    found = (each.path for each in piece.files if each.offset <= place < each.end_offset)
    return next(found, piece.where)


def _end_of(piece: _Piece) -> int:
    return piece.files[-1].end_offset if piece.files else 0


def _cut_pieces(root: Path, evidence: Evidence) -> Iterator[_Piece]:
    """Yield what was cut off a log, in the order of the names."""
    folder = root / SIDE_DIRECTORY
    for path in _listed(folder, evidence):
        named = _CUT_NAME.fullmatch(path.name)
        start = offset_named(named[1]) if named else None
        if start is None or path.suffix == ".json" or not path.is_file():
            continue
        if start > OFFSET_MAX:
            evidence.gap(str(path), "no log has an offset like that of its name")
            continue
        file = DataFile(str(path), start, path.stat().st_size)
        note = path.with_name(f"{path.name}.json")
        yield _Piece((file,), Held.CUT, str(path), _reason(note))


def _set_aside(root: Path, evidence: Evidence) -> Iterator[_Piece]:
    """Yield the logs of stores that were set aside as a whole."""
    for path in _listed(root / SET_ASIDE_DIRECTORY, evidence):
        try:
            store = open_store_directory(path)
        except NotAStoreError:
            continue
        except LogToolError as error:
            evidence.gap(str(path), str(error))
            continue
        yield _Piece(store.commit_log, Held.SET_ASIDE, f"{path}/commitlog", store=store)


def _listed(folder: Path, evidence: Evidence) -> list[Path]:
    try:
        found = sorted(folder.iterdir()) if folder.is_dir() else []
    except OSError as error:
        evidence.gap(str(folder), error.strerror or str(error), "run as the owner of the store")
        return []
    if len(found) > 2 * PIECES_MAX:
        evidence.gap(f"the older part of {folder}", f"it has {len(found)} files")
    return found[-2 * PIECES_MAX :]


def _reason(note: Path) -> str:
    try:
        return decode_json(note.read_bytes(), _CutNote).reason
    except (OSError, UnreadableError):
        return ""
