"""What a fenced group cut off: the ends of logs that were no master's, kept beside them.

    store root/truncated/00000000000000123456-<name>     the bytes from physical offset 123456 on

A cut record was never acknowledged as replicated; the audit makes sure of that.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from tandem.spark.audit.log_compare import Log, read_log
from tandem.spark.audit.rules import ACKNOWLEDGED_CUT, SEND_OK, Finding
from tandem.spark.commitlog.log_files import local_path
from tandem.spark.record_batches import RecordSlice
from tandem.wire.record_rule import BLANK_HEADER_BYTES, ScanStop
from tandem.wire.record_scan import scan_records
from tandem.wire.store_layout import SIDE_DIRECTORY, offset_named


class CutRecord(msgspec.Struct, frozen=True):
    """A sound record in a tail that was cut off."""

    node: str
    file: str
    topic: str
    keys: str
    body_crc: int
    physical_offset: int
    data: bytes


class AcknowledgedPlace(msgspec.Struct, frozen=True):
    """Where a sync send that was answered SEND_OK is, as its answer said."""

    send_id: str
    body_crc: int
    physical_offset: int


def cut_records(node: str, store: str) -> Iterator[CutRecord]:
    """Yield the records of all tails that a node has cut off, in the order of the files.

    A tail may end in the middle of a record: that one was nowhere whole.
    """
    folder = local_path(store) / SIDE_DIRECTORY
    if not folder.is_dir():
        return
    for path in sorted(folder.iterdir()):
        digits, dash, _ = path.name.partition("-")
        start = offset_named(digits)
        if dash and start is not None and path.suffix != ".json":
            yield from _records_of(node, path, start)


def _records_of(node: str, path: Path, start: int) -> Iterator[CutRecord]:
    data = bytearray(path.read_bytes())
    position = 0
    while position < len(data):
        scan = scan_records(data, start, position)
        part = RecordSlice(data, scan.columns, str(path))
        topics = part.topics.cast("string").to_pylist()
        keys = part.properties.values_of("KEYS").to_pylist()
        for row in range(len(part)):
            at, size = int(scan.columns.start[row]), int(scan.columns.size[row])
            yield CutRecord(
                node=node,
                file=path.name,
                topic=topics[row],
                keys=keys[row] or "",
                body_crc=int(scan.columns.body_crc[row]),
                physical_offset=int(scan.columns.physical_offset[row]),
                data=bytes(data[at : at + size]),
            )
        check = scan.check
        # With a blank record a file of the log ended; what was cut off goes on in the next.
        if check.stop is not ScanStop.BLANK or check.needed_bytes < BLANK_HEADER_BYTES:
            return
        position = check.end + check.needed_bytes


def cut_findings(
    records: Iterator[CutRecord],
    acknowledged: Mapping[str, AcknowledgedPlace],
    found: Mapping[str, int],
    master: Log,
) -> Iterator[Finding]:
    """Yield a finding for each acknowledged message among what was cut.

    A message may be in a tail, unacknowledged, and in the log again, because it was sent again.
    So what counts: its answer named this place, and either the log has no copy of it, or the very
    bytes that were cut.

    Args:
        records: what was cut.
        acknowledged: by send id, the sync sends answered SEND_OK.
        found: by send id, how many copies the master's log has.
        master: the master's log.
    """
    for record in records:
        send = acknowledged.get(record.keys)
        if send is None or send.body_crc != record.body_crc:
            continue
        if send.physical_offset != record.physical_offset:
            continue
        end = record.physical_offset + len(record.data)
        same = read_log(master, record.physical_offset, end) == record.data
        if same or not found.get(record.keys):
            yield Finding(
                finding=ACKNOWLEDGED_CUT,
                node=record.node,
                send_id=record.keys,
                mode="sync",
                status=SEND_OK,
                physical_offset=record.physical_offset,
                detail=f"acknowledged at this place, and cut off into {record.file}",
            )
