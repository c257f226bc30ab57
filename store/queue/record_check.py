"""RecordCheck: whether a record that is about to be handed out is what its queue says.

    unit of a queue --> bytes in the log --> sound, and of this place? --yes--> the reader gets them
                                                      |
                                                      no: an error, and the reader waits; what of
                                                      the log is bad goes into `LogDamage`

Nothing is passed over: another replica has the record, and brings it back, or somebody decides to
go on without it. Who moves a group, or sets `skip_damaged_records`, has decided.

It may be the queue that is wrong, and the log whole: then nothing of the log is noted as bad. The
log is the truth, and a queue that contradicts it is built anew.

What was checked since the store was opened is not checked for each reader. It is looked at *again*
where more depends on it than one answer: when a message is made from it, and when a filter says
that nobody wants it. Then all of its bytes are compared with the fingerprint of its file, if there
is one.

RocketMQ hands out whatever is there.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable
from typing import Final, Protocol

from store.files.mapped_file import MappedFile
from store.log.commit_log import CommitLog
from store.log.fingerprints import Fingerprints
from store.log.log_end import Blank, Damage, next_records
from store.machine.errors import RecordDamagedError
from store.queue.batch_consume_queue import BatchConsumeQueue, BatchUnit
from store.queue.consume_queue_store import AnyConsumeQueue, ConsumeQueueStore
from tandem.wire.fingerprint import Fingerprint
from tandem.wire.message import RECORD_BYTES_MIN, decode_message
from tandem.wire.message_properties import inner_batch_of
from tandem.wire.record_rule import record_parts
from tandem.wire.store_layout import FILLER_SIZE
from tandem.wire.system_topics import LMQ_PREFIX

_log = logging.getLogger(__name__)

_WALKED_BYTES: Final = 2 << 20

_WRONG_UNITS_MAX: Final = 1000

BLOCK_REASON: Final = "the block differs from its fingerprint"


class Missing(enum.Enum):
    """Why a reader goes on without a record."""

    GONE = "gone"
    """It was deleted with its file."""
    PASSED_OVER = "passed over"
    """It is damaged, and `skip_damaged_records` is set."""


class Look(Protocol):
    """What to do about the record of a message. None: hand it out."""

    def __call__(
        self, number: int, at: int, size: int, count: int | None = None
    ) -> Missing | RecordDamagedError | None:
        """Look at the record of message `number`: its place, its size, and how many are in it.

        `count` is what the unit of a batch says.
        """


class RecordCheck:
    """The check of one store, for all who read it.

    Attributes:
        skips: Whether damaged records are passed over: `skip_damaged_records`.
        passed_over: How many were, one as often as a reader has met it.
    """

    def __init__(
        self,
        commit_log: CommitLog,
        queues: ConsumeQueueStore,
        *,
        skips: bool = False,
        fingerprints: Fingerprints | None = None,
    ) -> None:
        self.skips = skips
        self._fingerprints = fingerprints
        self.passed_over = 0
        self._commit_log = commit_log
        self._queues = queues
        self._wrong_units: set[tuple[str, int, int, int, int]] = set()
        """Those of which it is known that the log is not to blame: to find out may take a walk."""

    def is_whole_from(self, queue: AnyConsumeQueue, queue_offset: int) -> bool:
        """True if all records of a queue from this message on that are held are known to be sound.

        That is so until something of the log is found to be bad.
        """
        is_known = queue_offset >= queue.confirmed_from and not queue.trouble
        return is_known and not self._commit_log.damage

    def looks(self, queue: AnyConsumeQueue, queue_offset: int, *, again: bool = False) -> Look:
        """Return what looks at the messages of a queue from this one on, before they are read.

        `again`: also at what is known to be sound, see the head of this module.
        """
        log = self._commit_log
        first = log.min_offset
        is_known = queue_offset >= queue.confirmed_from
        # Only until the queue has been moved up to the log's first record. After that a unit that
        # leads to before it is damaged.
        may_be_gone = is_known or first > queue.corrected_to
        is_whole = is_known and not log.damage and not again
        is_enough = is_known and not again

        def look(
            number: int, at: int, size: int, count: int | None = None
        ) -> Missing | RecordDamagedError | None:
            if queue.trouble:
                return self.in_doubt(queue, number)
            if size > 0 and (at < first or size == FILLER_SIZE) and may_be_gone:
                return Missing.GONE
            error = None
            if not is_whole:
                error = self._fault(queue, number, at, size, count, is_enough=is_enough)
            if error is None and again:
                error = self._block_fault(queue.topic, queue.queue_id, number, at, size)
            if error is None or not self.skips:
                return error
            self._pass_over(error)
            return Missing.PASSED_OVER

        return look

    def look_at_blocks(
        self, queue: AnyConsumeQueue, number: int, at: int, size: int
    ) -> Missing | RecordDamagedError | None:
        """Compare a record with the fingerprint of its file, and nothing else."""
        error = self._block_fault(queue.topic, queue.queue_id, number, at, size)
        if error is None or not self.skips:
            return error
        self._pass_over(error)
        return Missing.PASSED_OVER

    def blocks_around(self, at: int, size: int) -> tuple[int, int]:
        """Return from where to where the blocks of a record go; all of a file without any."""
        file = self._commit_log.files.find_by_offset(at)
        if file is None:
            return at, at + size
        known = self._fingerprint_of(file)
        if known is None:
            return file.file_from_offset, file.file_from_offset + file.size
        blocks = list(known.blocks(at, at + size))
        return blocks[0][1], blocks[-1][2]

    def in_doubt(self, queue: AnyConsumeQueue, number: int) -> RecordDamagedError:
        """Return why nothing of a queue in doubt can be read, even by readers that skip damage.

        The record is whole, and is read again as soon as the queue has been built anew.
        """
        reason = f"the queue is built anew: {queue.trouble}"
        return self._tell(self._error(queue, number, -1, reason))

    def message(self, queue: AnyConsumeQueue, number: int, at: int, size: int) -> memoryview | None:
        """Return the record of message `number`; None if it was deleted, or is passed over.

        Raises:
            RecordDamagedError: it is not what its queue says.
        """
        found = self.looks(queue, number)(number, at, size)
        if isinstance(found, RecordDamagedError):
            raise found
        return self._commit_log.message(at, size) if found is None else None

    def batch_fault(
        self, queue: BatchConsumeQueue, queue_offset: int, first: BatchUnit | None
    ) -> RecordDamagedError | None:
        """Return why the unit of a batch must not be gone by, though `first` is the one found.

        How many messages are in a batch says where the next one begins: with a wrong number a unit
        is passed over, or seems to reach past the end of its queue.
        """
        if first is None or first.end > queue.next_offset:
            unit = first or queue.batch_near(queue_offset)
        elif first.base > queue_offset:
            unit = queue.batch_before(queue_offset)
        else:
            return None
        if unit is None:
            return None
        found = self.looks(queue, unit.base, again=True)(unit.base, *unit[:2], unit.batch_size)
        return found if isinstance(found, RecordDamagedError) else None

    def at_place(self, offset: int, *, again: bool = False) -> bytes | None:
        """Return the record that starts at `offset`, None if none seems to; it may be a guess.

        Raises:
            RecordDamagedError: one starts there, and is damaged.
        """
        log = self._commit_log
        record = log.record_at(offset)
        bad = log.damage.within(offset, offset + (len(record) if record is not None else 1))
        if bad is not None:
            raise RecordDamagedError("", -1, -1, offset, bad.reason)
        if record is None and log.seems_record(offset):
            raise RecordDamagedError("", -1, -1, offset, "it is not sound")
        if record is not None and again:
            error = self._block_fault("", -1, -1, offset, len(record))
            if error is not None:
                raise error
        return record

    def store_timestamp_ms(self, offset: int) -> int:
        """Return when the record that a queue names was stored, -1 if it is not held.

        Raises:
            RecordDamagedError: there is no sound record, so no time can be believed.
        """
        log = self._commit_log
        is_known = offset >= log.checked_from and not log.damage
        if is_known or offset < log.min_offset or self.skips:
            return log.store_timestamp_ms(offset)
        if self.at_place(offset) is None:
            raise RecordDamagedError("", -1, -1, offset, "a queue names it, and it is not there")
        return log.store_timestamp_ms(offset)

    def by_place(self, topic: str) -> Callable[[int, int], memoryview | None]:
        """Return what reads records of a topic by place and size: None: it was deleted.

        It raises RecordDamagedError, and passes over what is damaged where `skips` says so.
        """

        def read(at: int, size: int) -> memoryview | None:
            log = self._commit_log
            if at < log.min_offset:
                return None
            bad = log.damage.within(at, at + size)
            reason = bad.reason if bad is not None else log.record_fault(at, size, None)
            error: RecordDamagedError | None = None
            if reason:
                error = RecordDamagedError(topic, -1, -1, at, reason)
                if bad is None:
                    self._note(error, size, lambda: self._is_bad_record(at, size))
                self._tell(error)
            else:
                error = self._block_fault(topic, -1, -1, at, size)
            if error is None:
                return log.message(at, size)
            if self.skips:
                self._pass_over(error)
                return None
            raise error

        return read

    def _fault(
        self,
        queue: AnyConsumeQueue,
        number: int,
        at: int,
        size: int,
        count: int | None,
        *,
        is_enough: bool,
    ) -> RecordDamagedError | None:
        """Return why the record of message `number`, which its unit names, must not be handed out.

        `is_enough`: that it was checked since the store was opened, and so was the unit.
        """
        log = self._commit_log
        bad = log.damage.within(at, at + size) if log.damage else None
        if bad is not None:
            return self._tell(self._error(queue, number, at, bad.reason))
        if is_enough:
            return None
        # Light queues name records of other topics.
        is_light = queue.topic.startswith(LMQ_PREFIX)
        owner = None if is_light else (queue.topic, queue.queue_id, number)
        reason = log.record_fault(at, size, owner)
        if not reason:
            is_batch = count is not None and isinstance(queue, BatchConsumeQueue)
            held = self._count_in(at, size) if is_batch else count
            if held == count:
                return None
            reason = f"the unit says that {count} messages are in it, the record says {held}"
            return self._tell(self._error(queue, number, at, reason))
        error = self._error(queue, number, at, reason)
        self._note(error, size, lambda: self._is_bad_log(queue, number, at, size))
        return self._tell(error)

    def _count_in(self, at: int, size: int) -> int:
        record = self._commit_log.message(at, size)
        parts = record_parts(record, at, 0) if record is not None else ""
        if record is None or isinstance(parts, str):
            return 0
        properties = bytes(record[parts.properties_start : parts.properties_end])
        return inner_batch_of(properties, 0)[1]

    def _fingerprint_of(self, file: MappedFile | None) -> Fingerprint | None:
        """Return that of a closed file, None if there is none to go by."""
        fingerprints = self._fingerprints
        if file is None or fingerprints is None or file.file_from_offset not in fingerprints:
            return None
        known = fingerprints.of(file.file_from_offset)
        if known is None or known.era != fingerprints.era or known.size != file.size:
            return None
        return known

    def _block_fault(
        self, topic: str, queue_id: int, number: int, at: int, size: int
    ) -> RecordDamagedError | None:
        """Return that a block of this record is not what its fingerprint says; note it as bad."""
        file = self._commit_log.files.find_by_offset(at)
        known = self._fingerprint_of(file)
        if file is None or known is None:
            return None
        blocks = list(known.blocks(at, at + size))
        start, end = blocks[0][1], blocks[-1][2]
        with memoryview(file.buffer)[start - known.start : end - known.start] as data:
            differing = known.differing(start, data)
        for bad in differing:
            self._commit_log.damage.note(*bad, BLOCK_REASON)
        if not differing:
            return None
        return self._tell(RecordDamagedError(topic, queue_id, number, at, BLOCK_REASON))

    def _note(self, error: RecordDamagedError, size: int, is_bad_log: Callable[[], bool]) -> None:
        """Note what of the log is bad; nothing if it is the unit that is wrong."""
        asked = (error.topic, error.queue_id, error.queue_offset, error.physical_offset, size)
        if asked in self._wrong_units:
            return
        if is_bad_log():
            start = error.physical_offset
            self._commit_log.damage.note(start, start + size, error.reason)
            return
        if len(self._wrong_units) >= _WRONG_UNITS_MAX:
            self._wrong_units.clear()
        self._wrong_units.add(asked)

    def _tell(self, error: RecordDamagedError) -> RecordDamagedError:
        told = self._commit_log.faults_told
        about = (error.topic, error.queue_id, error.queue_offset, error.physical_offset)
        if not (told.is_full and told.last(about) is None) and told.is_news(error.reason, about):
            _log.error("%s", error)
        return error

    def _pass_over(self, error: RecordDamagedError) -> None:
        """Count a damaged record that a reader goes on without, and say so."""
        self.passed_over += 1
        told = self._commit_log.faults_told
        if told.is_news("passed over", about=("passed over", error.physical_offset)):
            _log.error(
                "message %d of queue %d of topic %s is passed over, as store.skip_damaged_records"
                " says (%d so far): %s",
                error.queue_offset,
                error.queue_id,
                error.topic,
                self.passed_over,
                error.reason,
            )

    @staticmethod
    def _error(queue: AnyConsumeQueue, number: int, at: int, reason: str) -> RecordDamagedError:
        return RecordDamagedError(queue.topic, queue.queue_id, number, at, reason)

    def _is_bad_log(self, queue: AnyConsumeQueue, number: int, at: int, size: int) -> bool:
        """Say whether the log is to blame, and not the unit."""
        record = self._commit_log.record_at(at)
        if record is not None:
            return len(record) == size and not self._is_of_another_unit(queue, number, at, record)
        return self._is_bad_record(at, size)

    def _is_bad_record(self, at: int, size: int) -> bool:
        """Say whether a record of this size may have been here, and no sound one is."""
        log = self._commit_log
        if size < RECORD_BYTES_MIN or log.message(at, size) is None:
            return False
        return log.record_at(at) is None and self._is_where_a_record_begins(at)

    def _is_of_another_unit(
        self, queue: AnyConsumeQueue, number: int, at: int, record: bytes
    ) -> bool:
        """Say whether some other unit names this record as its own."""
        message, _ = decode_message(record)
        other = self._queues.find(message.topic, message.queue_id)
        if other is None or (other is queue and message.queue_offset == number):
            return False
        if not other.min_offset <= message.queue_offset < other.next_offset:
            return False
        return other.unit(message.queue_offset)[:2] == (at, len(record))

    def _is_where_a_record_begins(self, at: int) -> bool:
        """Walk through the file up to `at`: False if a whole record is across that place.

        What cannot be walked through does not speak for the log.
        """
        file = self._commit_log.files.find_by_offset(at)
        if file is None:
            return False
        position, end = 0, at - file.file_from_offset
        while position < end:
            offset = file.file_from_offset + position
            _, found = next_records(
                file.buffer, position, file.size, offset, bytes_max=_WALKED_BYTES, check_crc=False
            )
            if isinstance(found, Damage):
                return True
            if isinstance(found, Blank):
                return False
            starts, sizes = found.physical_offset, found.size
            if int(starts[-1]) >= at:
                return bool((starts == at).any())
            position = int(starts[-1] + sizes[-1]) - file.file_from_offset
        return position == end
