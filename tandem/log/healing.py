"""Plans the healing of a log from another directory that holds the same log.

The logs of a master and its slaves, and of the replicas of a fenced group, are equal byte for byte.
So the other log is walked from record to record, and this one is compared with it. Where they
differ, the record of the other one is taken if it is sound and ours is not:

    ours      theirs    ours is then
    equal     equal     left as it is
    bad       sound     healed
    sound     bad       left as it is
    bad       bad       named: this one cannot heal it
    sound     sound     refused: one of the two is another log, or a byte has changed that no
                        checksum covers, and nobody can say which is right

Before that whole blocks are taken, of a closed file of which ours has a fingerprint: where our
block does not fit it and theirs does. Where our block fits, the other log's record is the bad one.

What is asked of a checksum: the CRC of the body, the CRC property where there is one, lengths,
magic and place. Two logs that have no record in common, or lists of epochs that contradict each
other, are not copies, and nothing is taken over.

Nothing is written here: see `store/log_from_copy.py`, which checks again what it copies.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from tandem.data_file import DataFile, read_at
from tandem.log.block_check import fingerprints_of
from tandem.log.epoch_list import contradiction
from tandem.log.errors import BadRequestError, NoRepair, RequestFault
from tandem.log.files import open_file
from tandem.log.log_scan import FileScan, LogWindow, log_extent
from tandem.log.small_files import noted_start
from tandem.log.store_directory import StoreDirectory
from tandem.log.verify import VerifyReport
from tandem.wire.crc import raw_crc32
from tandem.wire.property_crc import property_crc_fault
from tandem.wire.record_check import check_records
from tandem.wire.record_rule import BLANK_HEADER_BYTES

if TYPE_CHECKING:
    from tandem.wire.fingerprint import Fingerprint

LOG_FINDINGS: Final = frozenset(
    {
        "record-corrupt",
        "record-crc",
        "record-property-crc",
        "block-changed",
        "log-file-missing",
        "log-file-length",
        "log-end-damaged",
        "log-start",
    }
)
"""What is wrong with the log itself."""

_NO_PROPERTY: Final = "no property"


class _Refusal(NamedTuple):
    cause: NoRepair
    text: str


class HealedRange(msgspec.Struct, frozen=True):
    """Bytes to take over, by physical offset, and the CRC-32 of the bytes there."""

    start: int
    end: int
    crc32: int
    reason: str
    """What is wrong with ours."""


class HealedFile(msgspec.Struct, frozen=True):
    """A file of the log that is replaced: `path` as it is to be, `source` what is copied from."""

    offset: int
    path: str
    source: str
    is_missing: bool
    size_before: int
    ranges: tuple[HealedRange, ...]


class HealPlan(msgspec.Struct, frozen=True):
    """What a healing would do. `steps` are for people, `request` is for the store.

    `refusal` says why nothing will be done, empty if it can be; `cause` is its kind. `left` are
    places that are bad in both logs.
    """

    files: tuple[HealedFile, ...]
    steps: tuple[str, ...]
    left: tuple[str, ...]
    refusal: str
    cause: NoRepair | None
    request: dict[str, Any]

    @property
    def is_needless(self) -> bool:
        """Whether there is nothing to do, or to say."""
        return not self.files and self.cause is None and not self.left


def plan_healing(
    store: StoreDirectory,
    source: StoreDirectory,
    report: VerifyReport,
    *,
    with_older: bool = False,
    commit_log_directories: Sequence[str] = (),
) -> HealPlan:
    """Compare the log of `store`, of which `report` is, with that of `source`.

    With `with_older` the files before the first one of `store` are taken over as well.

    Raises:
        BadRequestError: one of the two holds no log, or both are one directory.
        UnreadableFileError: a file cannot be read, or was removed meanwhile.
    """
    for side in (store, source):
        if not side.log_file_bytes:
            text = f"{side.path}: there is no file of a commit log to compare"
            raise BadRequestError(text, RequestFault.NO_LOG, side.path)
    if {file.path for file in store.commit_log} & {file.path for file in source.commit_log}:
        text = f"{source.path} is the store that is to be healed; give another copy"
        raise BadRequestError(text, RequestFault.SAME_STORE, source.path)
    directories = list(commit_log_directories) or [f"{store.path}/commitlog"]
    healing = _Healing(store, source, report, directories, with_older=with_older)
    return healing.plan()


def record_trouble(data: bytes, offset: int) -> str | None:
    """Return what is wrong with the record that `data`, from `offset` of a log, should be.

    None if nothing is.
    """
    check = check_records(data, offset)
    if check.count != 1 or check.end != len(data):
        return check.reason or "no record is there"
    fault = property_crc_fault(data, 0, len(data))
    return None if fault is None or fault.startswith(_NO_PROPERTY) else fault


class _Healing:
    def __init__(
        self,
        store: StoreDirectory,
        source: StoreDirectory,
        report: VerifyReport,
        directories: list[str],
        *,
        with_older: bool,
    ) -> None:
        self._store = store
        self._source = source
        self._report = report
        self._directories = directories
        self._with_older = with_older
        self._file_bytes = store.log_file_bytes
        self._equal_count = 0
        self._conflict: _Refusal | None = None
        self._theirs_bad: list[tuple[int, int, str]] = []
        self._ranges: list[HealedRange] = []
        self._files: list[HealedFile] = []
        self._fingerprints = fingerprints_of(store)
        self._known: Fingerprint | None = None
        """That of our file which is being compared."""
        self._blocks: list[tuple[int, bytes]] = []
        """Of that file: the blocks to be taken over, and where they begin."""
        self._known_blocks: set[int] = set()
        """Of that file: where the blocks begin that are what they have to be."""

    def plan(self) -> HealPlan:
        refusal = self._not_copies()
        if not refusal:
            self._compare()
            refusal = self._conflict
        if not refusal and self._files and not self._equal_count:
            refusal = _Refusal(
                NoRepair.NOTHING_IN_COMMON,
                f"{self._source.path}: no record of it is in {self._store.path} as well: nothing"
                " shows that they are copies of one log",
            )
        left = [] if refusal else self._left()
        if not refusal and self._files and self._store.is_live:
            refusal = _Refusal(
                NoRepair.IN_USE,
                f"{self._store.path} is open in a running node; stop the node first",
            )
        return HealPlan(
            files=tuple(self._files),
            steps=tuple(self._steps()) if not refusal else (),
            left=tuple(left),
            refusal=refusal.text if refusal else "",
            cause=refusal.cause if refusal else None,
            request={
                "directory": str(Path(self._store.path).resolve()),
                "file_bytes": self._file_bytes,
                "files": [msgspec.structs.asdict(file) for file in self._files],
            },
        )

    # -- are they copies? ------------------------------------------------------------------------

    def _not_copies(self) -> _Refusal | None:
        ours, theirs = self._file_bytes, self._source.log_file_bytes
        if ours != theirs:
            return _Refusal(
                NoRepair.OTHER_SIZE,
                f"{self._source.path}: its log files have {theirs} bytes, those of"
                f" {self._store.path} {ours}: they are not copies of one another",
            )
        conflict = contradiction(self._store.path, self._source.path, self._end)
        if conflict:
            text = f"{self._source.path}: it is not a copy of {self._store.path}: {conflict.text}"
            return _Refusal(NoRepair.OTHER_EPOCHS, text)
        return None

    @property
    def _end(self) -> int:
        """Where the comparison ends: our log ends there, or theirs does where our end is lost."""
        if any(finding.kind == "log-end-damaged" for finding in self._report.findings):
            return log_extent(self._source.commit_log).end
        return self._report.log_end

    # -- comparing -------------------------------------------------------------------------------

    def _compare(self) -> None:
        ours = {file.offset: file for file in self._store.commit_log}
        theirs = {file.offset: file for file in self._source.commit_log}
        noted = noted_start(Path(self._store.path))
        first = min(ours)
        if self._with_older or 0 <= noted < first:
            first = min([*ours, *(at for at in theirs if self._with_older or at >= noted)])
        for offset in range(first, self._end, self._file_bytes):
            own, other = ours.get(offset), theirs.get(offset)
            stop = min(offset + self._file_bytes, self._end)
            if other is None or other.size != self._file_bytes:
                self._theirs_bad.append((offset, stop, "it does not hold that file"))
                continue
            self._compare_file(own, other, stop)
            if self._conflict:
                return

    def _compare_file(self, own: DataFile | None, other: DataFile, stop: int) -> None:
        self._ranges, self._blocks, self._known_blocks = [], [], set()
        self._known = self._fingerprints.get(other.offset)
        with ExitStack() as opened:
            theirs = opened.enter_context(open_file(other.path))
            ours = opened.enter_context(open_file(own.path)) if own else -1
            self._take_blocks(theirs, ours, other)
            scan = FileScan(theirs, other, 0, stop - other.offset)
            covered = other.offset
            for window in scan.windows():
                for found in window.breaks:
                    bad = (found.offset, other.offset + found.end, found.reason)
                    self._theirs_bad.append(bad)
                if len(window.columns):
                    covered = self._compare_window(window, ours)
            if scan.closed and not self._conflict:
                self._compare_blank(theirs, ours, other, covered)
            if own is not None:
                self._expect_nothing_sound(ours, own)
        for start, data in self._blocks:
            if not any(r.start <= start and start + len(data) <= r.end for r in self._ranges):
                self._take(start, data, "the block does not fit its fingerprint")
        is_whole = own is not None and own.size == self._file_bytes
        if self._ranges or not (is_whole or covered == other.offset):
            self._files.append(
                HealedFile(
                    offset=other.offset,
                    path=str(Path(own.path).resolve()) if own else self._new_path(other.offset),
                    source=str(Path(other.path).resolve()),
                    is_missing=own is None,
                    size_before=own.size if own else 0,
                    ranges=tuple(self._ranges),
                )
            )

    def _take_blocks(self, theirs: int, ours: int, other: DataFile) -> None:
        """Take blocks that differ from our fingerprint here, and fit it there."""
        known = self._known
        if known is None or ours < 0 or known.size != other.size:
            return
        for _, start, end in known.blocks(known.start, known.end):
            own = read_at(ours, start - known.start, end - start)
            if len(own) == end - start and not known.differing(start, own):
                self._known_blocks.add(start)
                continue
            data = read_at(theirs, start - known.start, end - start)
            if len(data) == end - start and not known.differing(start, data):
                self._blocks.append((start, data))

    def _ours(self, descriptor: int, file_offset: int, position: int, size: int) -> bytes:
        """Return bytes of our file, with the blocks that are taken over in their places."""
        if descriptor < 0:
            return b""
        start = file_offset + position
        own = bytearray(read_at(descriptor, position, size))
        for at, block in self._blocks:
            low, high = max(at, start), min(at + len(block), start + len(own))
            if low < high:
                own[low - start : high - start] = block[low - at : high - at]
        return bytes(own)

    def _is_known(self, offset: int, size: int) -> bool:
        """Say whether our bytes, where another log has others, are what our fingerprint says."""
        known = self._known
        blocks = known.blocks(offset, offset + size) if known is not None else ()
        return bool(self._known_blocks) and {start for _, start, _ in blocks} <= self._known_blocks

    def _compare_window(self, window: LogWindow, ours: int) -> int:
        """Compare the records of a window; return the offset after them."""
        starts: list[int] = window.columns.start.tolist()
        sizes: list[int] = window.columns.size.tolist()
        start, end = starts[0], starts[-1] + sizes[-1]
        data = bytes(window.data[start:end])
        own = self._ours(ours, window.file.offset, window.position + start, len(data))
        if own == data:
            self._equal_count += len(starts)
            return window.base_offset + end
        if not own.strip(b"\0") and check_records(data, window.base_offset + start).end == len(
            data
        ):
            self._take(window.base_offset + start, data, "nothing is there")
            return window.base_offset + end
        for at, size in zip(starts, sizes, strict=True):
            place = window.base_offset + at
            self._compare_record(
                place, own[at - start : at - start + size], data[at - start : at - start + size]
            )
            if self._conflict:
                break
        return window.base_offset + end

    def _compare_record(self, offset: int, own: bytes, other: bytes) -> None:
        if own == other:
            self._equal_count += 1
            return
        other_trouble, own_trouble = record_trouble(other, offset), record_trouble(own, offset)
        if other_trouble:
            self._theirs_bad.append((offset, offset + len(other), other_trouble))
        elif own_trouble:
            self._take(offset, other, own_trouble)
        elif self._is_known(offset, len(own)):
            reason = "it is sound, and not what the fingerprint here says"
            self._theirs_bad.append((offset, offset + len(other), reason))
        else:
            self._conflict = self._differs_at(offset)

    def _expect_nothing_sound(self, ours: int, own: DataFile) -> None:
        """Nothing that is taken over may take the place of a record, of whatever length."""
        for found in self._ranges:
            start, stop = found.start - own.offset, min(found.end - own.offset, own.size)
            for window in FileScan(ours, own, start, stop).windows() if start < stop else ():
                rows = zip(window.columns.start.tolist(), window.columns.size.tolist(), strict=True)
                for at, size in rows:
                    offset = window.base_offset + at
                    if record_trouble(bytes(window.data[at : at + size]), offset) is None:
                        self._conflict = self._conflict or self._differs_at(offset)
                        return

    def _differs_at(self, offset: int) -> _Refusal:
        return _Refusal(
            NoRepair.OTHER_RECORD,
            f"{self._source.path}: the record at offset {offset} differs from that of"
            f" {self._store.path}, and each fits its checksums: one of them is another log, or"
            " a byte has changed that no checksum covers; `tandem log diff` says what differs",
        )

    def _compare_blank(self, theirs: int, ours: int, other: DataFile, offset: int) -> None:
        position = offset - other.offset
        data = read_at(theirs, position, BLANK_HEADER_BYTES)
        own = self._ours(ours, other.offset, position, BLANK_HEADER_BYTES)
        if own != data:
            self._take(offset, data, "the blank record that closes the file is not there")

    def _take(self, offset: int, data: bytes, reason: str) -> None:
        last = self._ranges[-1] if self._ranges else None
        if last is not None and last.end == offset:
            crc = raw_crc32(data, last.crc32)
            end = offset + len(data)
            self._ranges[-1] = msgspec.structs.replace(last, end=end, crc32=crc)
        else:
            self._ranges.append(HealedRange(offset, offset + len(data), raw_crc32(data), reason))

    def _new_path(self, offset: int) -> str:
        directory = self._directories[offset // self._file_bytes % len(self._directories)]
        return f"{Path(directory).resolve()}/{offset:020d}"

    # -- words -----------------------------------------------------------------------------------

    def _steps(self) -> list[str]:
        steps = []
        for file in self._files:
            if file.is_missing:
                steps.append(f"copy the missing file {file.path} from {file.source}")
                continue
            if file.size_before != self._file_bytes:
                steps.append(
                    f"make {file.path} {self._file_bytes} bytes long, as its copy is: it has"
                    f" {file.size_before}"
                )
            steps += [
                f"take over offsets {found.start} to {found.end} of {file.path} from {file.source}:"
                f" {found.reason}"
                for found in file.ranges
            ]
        return steps

    def _left(self) -> list[str]:
        """Say which places are bad here and cannot be had from there."""
        healed = [(found.start, found.end) for file in self._files for found in file.ranges]
        healed += [
            (file.offset, file.offset + max(file.size_before, self._file_bytes) + 1)
            for file in self._files
            if file.size_before != self._file_bytes
        ]
        left = []
        for finding in self._report.findings:
            if finding.kind not in LOG_FINDINGS or finding.offset < 0:
                continue
            at = finding.offset
            if any(start <= at < end for start, end in healed):
                continue
            why = next((r for start, end, r in self._theirs_bad if start <= at < end), "")
            why = why or "it has the same bytes there"
            left.append(f"offset {at} is bad here, and in {self._source.path} as well: {why}")
        return left
