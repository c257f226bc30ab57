"""What an archive says about itself: the manifest, a small file for each piece of log in it.

    ARCHIVE/_tandem/archive.json                       what it is, of which version
    ARCHIVE/_tandem/units/GROUP/<20 digits>.json       a piece of the log of GROUP: a `Unit`
    ARCHIVE/_tandem/staging/…                          what a job is about to publish
    ARCHIVE/data/topic=T/date=D/GROUP-<20 digits>-<n>.parquet

A data file that no unit names does not exist for our readers. The digits are the physical offset
where the piece begins. All nodes of a group hold the same log, so a group is archived once.

Units are `archived` when their data files are in place, and `verified` when those have been read
again and compared with the log, row by row.
"""

import enum
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from tandem.spark.archive.disk import Disk
from tandem.spark.archive.errors import (
    ArchiveDamagedError,
    ArchiveError,
    ArchiveFault,
    NotAnArchiveError,
    NotArchiveFault,
)
from tandem.wire.untrusted import UnreadableError, decode_json

VERSION: Final = 1
META: Final = "_tandem"
DATA: Final = "data"

_ESCAPED: Final = re.compile("[\x00-\x1f\"#%'*/:=?\\\\\x7f{\\[\\]^]")
_NUMBER: Final = re.compile(r"-(\d+)\.parquet$")
_DEFAULT_PARTITION: Final = "__HIVE_DEFAULT_PARTITION__"

StructT = TypeVar("StructT", bound=msgspec.Struct)


class UnitState(enum.StrEnum):
    """How far a unit may be trusted."""

    ARCHIVED = "archived"
    VERIFIED = "verified"


class QueueRange(msgspec.Struct, frozen=True):
    """The rows of one queue: queue offsets within [first, end), `rows` of them.

    A queue that was made anew within a file has one range before that, and one after.
    """

    queue_id: int
    first: int
    end: int
    rows: int


class DataFilePart(msgspec.Struct, frozen=True):
    """One Parquet file. `path` counts from the archive. Times are store times in ms, both met.

    `crc_sum` is the sum of the BODYCRC of its rows.
    """

    path: str
    topic: str
    date: str
    rows: int
    size_bytes: int
    sha256: str
    crc_sum: int
    first_store_ms: int
    last_store_ms: int
    queues: tuple[QueueRange, ...]

    @property
    def number(self) -> int:
        """Which one it is of the files that a unit has of a topic and a date."""
        found = _NUMBER.search(self.path)
        return int(found[1]) if found else 0


class Unit(msgspec.Struct, frozen=True):
    """A piece [first, end) of the log of a group, in bytes of physical offset.

    `log_crc` is the CRC-32 of those bytes. `closes_file` says whether the log file `log_file` ends
    with it. `left_out` counts the rows of `excluded_topics`. `scrubbed` says whether rows were
    changed on purpose, so that they cannot be compared with the log any more.
    """

    group: str
    first: int
    end: int
    log_file: str
    closes_file: bool
    log_crc: int
    rows: int
    left_out: int
    crc_sum: int
    state: UnitState
    archived_at_ms: int
    verified_at_ms: int
    files: tuple[DataFilePart, ...]
    excluded_topics: tuple[str, ...] = ()
    scrubbed: bool = False

    @property
    def name(self) -> str:
        """What its files are called after."""
        return f"{self.group}-{self.first:020d}"

    def in_log_order(self) -> list[DataFilePart]:
        """Return its files by topic, those of each as the log has their rows."""
        return sorted(self.files, key=lambda file: (file.topic, file.date, file.number))


class ArchiveFacts(msgspec.Struct, frozen=True):
    """The file `archive.json`. `kind` is "log" or "scrubbed"."""

    version: int
    kind: str = "log"
    made_from: str = ""


class Gap(msgspec.Struct, frozen=True):
    """Bytes [first, end) of the log of a group that are not in the archive."""

    group: str
    first: int
    end: int


def joined(queues: Iterable[QueueRange]) -> tuple[QueueRange, ...]:
    """Return one range for each queue, as all of them were written at first."""
    found: dict[int, QueueRange] = {}
    for each in queues:
        known = found.get(each.queue_id, each)
        rows = each.rows + (known.rows if each.queue_id in found else 0)
        first, end = min(known.first, each.first), max(known.end, each.end)
        found[each.queue_id] = QueueRange(each.queue_id, first, end, rows)
    return tuple(found.values())


def partition_folder(topic: str, date: str) -> str:
    """Return the folder of a topic and a date, named as Spark and Hive name partitions."""
    name = _ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", topic) or _DEFAULT_PARTITION
    return f"{DATA}/topic={name}/date={date}"


def unit_file(archive: Path, group: str, first: int) -> Path:
    """Return where the unit of a group that begins at a physical offset is written down."""
    return archive / META / "units" / group / f"{first:020d}.json"


def staging_folder(archive: Path) -> Path:
    """Return where data files wait until they are published."""
    return archive / META / "staging"


def create_archive(archive: Path, disk: Disk, facts: ArchiveFacts) -> None:
    """Make the archive, or see that the one that is there is of this kind.

    Raises:
        NotAnArchiveError: the directory holds something else, or an archive of another kind.
    """
    place = archive / META / "archive.json"
    if place.exists():
        known = read_facts(archive)
        if known != facts:
            raise NotAnArchiveError(
                f"{archive} is an archive of another kind ({known.kind} of"
                f" {known.made_from or 'a log'}); name another directory",
                NotArchiveFault.OTHER_KIND,
            )
        return
    if archive.is_dir() and any(entry.name != META for entry in archive.iterdir()):
        raise NotAnArchiveError(
            f"{archive} has something else in it; name a new or an empty directory",
            NotArchiveFault.NOT_EMPTY,
        )
    disk.write(place, msgspec.json.format(msgspec.json.encode(facts)))


def read_facts(archive: Path) -> ArchiveFacts:
    """Return what an archive is.

    Raises:
        NotAnArchiveError: it is none, or of a version that this program does not know.
    """
    facts = _read(
        archive / META / "archive.json",
        ArchiveFacts,
        if_missing=f"{archive} is no archive: there is no {META}/archive.json in it; name the"
        " directory that `tandem pipeline archive` has written",
    )
    if facts.version != VERSION:
        raise NotAnArchiveError(
            f"{archive} is of version {facts.version}, and this program reads {VERSION};"
            " use the one that has written it",
            NotArchiveFault.OTHER_VERSION,
        )
    return facts


class Manifest:
    """All units of an archive, by group and physical offset."""

    def __init__(self, archive: Path, units: Iterable[Unit]) -> None:
        self.archive = archive
        self.units = sorted(units, key=lambda unit: (unit.group, unit.first))

    def of(self, group: str) -> list[Unit]:
        """Return the units of a group, in log order."""
        return [unit for unit in self.units if unit.group == group]

    def end_of(self, group: str) -> int | None:
        """Return the physical offset up to which a group is archived; None if nothing is."""
        return max((unit.end for unit in self.of(group)), default=None)

    def rows_of(self, topic: str) -> int:
        """Return how many rows of a topic are archived."""
        return sum(file.rows for unit in self.units for file in unit.files if file.topic == topic)

    def check_topics(self, topics: Iterable[str]) -> None:
        """See that each topic is in the archive.

        Raises:
            ArchiveError: one is not.
        """
        known = {file.topic for unit in self.units for file in unit.files}
        unknown = sorted(set(topics) - known)
        if unknown:
            raise ArchiveError(
                f"{self.archive} has no topic {', '.join(unknown)};"
                f" there are {', '.join(sorted(known)) or 'none'}"
            )

    def gaps(self) -> list[Gap]:
        """Return what is missing between the units of each group."""
        return [
            Gap(after.group, before.end, after.first)
            for before, after in zip(self.units, self.units[1:], strict=False)
            if before.group == after.group and before.end < after.first
        ]

    def faults(self) -> list[str]:
        """Return what no manifest may say: pieces that overlap, rows that do not add up.

        Queue offsets that come again are none: a topic that is made anew counts from 0.
        """
        found = [
            f"{after.name} begins before {before.name} ends, at {before.end}"
            for before, after in zip(self.units, self.units[1:], strict=False)
            if before.group == after.group and before.end > after.first
        ]
        for unit in self.units:
            rows = sum(file.rows for file in unit.files)
            if rows != unit.rows:
                found.append(f"{unit.name} has {unit.rows} rows, its files {rows}")
        return found

    def spans(self) -> dict[str, dict[str, dict[int, tuple[int, int]]]]:
        """Return by topic, broker and queue between which queue offsets messages are archived.

        Of a queue that was made anew, which begins with lower offsets than it had, they are those
        that it has since then.
        """
        spans: dict[str, dict[str, dict[int, tuple[int, int]]]] = {}
        for unit in self.units:
            for file in unit.in_log_order():
                queues = spans.setdefault(file.topic, {}).setdefault(unit.group, {})
                for queue in file.queues:
                    first, end = queues.get(queue.queue_id, (queue.first, queue.first))
                    is_anew = queue.first < end
                    queues[queue.queue_id] = (queue.first if is_anew else first, queue.end)
        return spans

    def boundaries(self) -> dict[str, dict[str, dict[int, int]]]:
        """Return by topic, broker and queue the first queue offset that is not archived."""
        return {
            topic: {
                broker: {queue_id: end for queue_id, (_, end) in queues.items()}
                for broker, queues in brokers.items()
            }
            for topic, brokers in self.spans().items()
        }

    def deletable(self) -> list[Unit]:
        """Return the units whose log file is in the archive as a whole, and verified.

        A log loses its files from the oldest on, so the list of a group ends at the first file
        that has to stay. A file may be in several units, of which the first may be gone.
        """
        found: list[Unit] = []
        for group in sorted({unit.group for unit in self.units}):
            begin = end = -1  # of what there is without a gap, up to a unit
            for unit in self.of(group):
                if unit.state is not UnitState.VERIFIED or unit.left_out or unit.scrubbed:
                    break
                begin = begin if unit.first == end else unit.first
                end = unit.end
                if unit.closes_file and begin > int(unit.log_file):
                    break
                if unit.closes_file:
                    found.append(unit)
        return found


def read_manifest(archive: Path) -> Manifest:
    """Read every unit.

    Raises:
        NotAnArchiveError: it is none.
        ArchiveDamagedError: a unit cannot be read.
    """
    read_facts(archive)
    places = sorted((archive / META / "units").glob("*/*.json"))
    units = [_read(place, Unit, if_missing=f"{place} has just been removed") for place in places]
    for place, unit in zip(places, units, strict=True):
        if place != unit_file(archive, unit.group, unit.first):
            text = f"{place} describes {unit.name}: it was moved; put it back"
            raise ArchiveDamagedError(text, ArchiveFault.MOVED)
    return Manifest(archive, units)


def write_unit(archive: Path, unit: Unit, disk: Disk) -> None:
    """Write a unit down. From here on its rows exist."""
    data = msgspec.json.format(msgspec.json.encode(unit), indent=1)
    disk.write(unit_file(archive, unit.group, unit.first), data)


def _read(place: Path, kind: type[StructT], *, if_missing: str) -> StructT:
    try:
        data = place.read_bytes()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotAnArchiveError(if_missing, NotArchiveFault.MISSING) from error
    try:
        return decode_json(data, kind)
    except UnreadableError as error:
        raise ArchiveDamagedError(
            f"{place} is damaged ({error}); restore it from a copy. While a store still has its"
            " piece of the log, that can be archived again: remove the file, and run"
            " `tandem pipeline archive`",
            ArchiveFault.UNREADABLE,
        ) from error
