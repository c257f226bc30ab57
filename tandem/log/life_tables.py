"""The tables beside a log that say how far consumers and delayed messages are, for `tandem why`.

    config/groupJournal.json     of a fenced group: `position`, and `offsets` by `topic@group`
    config/consumerOffset.json   RocketMQ's, and in a fenced group a copy for other programs
    config/delayOffset.json      the next queue offset by delay level

Of a node that runs they are as they were saved last, some seconds ago.
"""

from pathlib import Path
from typing import Final, TypeVar

import msgspec

from tandem.data_file import TOPIC_TABLE_BYTES_MAX
from tandem.life.evidence import DelayAt, Evidence, GroupAt, QueueAt
from tandem.wire.checksum_line import without_checksum
from tandem.wire.errors import MalformedFrameError
from tandem.wire.request_headers import Body
from tandem.wire.route import decode_json_body
from tandem.wire.store_layout import GROUP_JOURNAL_FILE
from tandem.wire.untrusted import UnreadableError

GROUP_SEPARATOR: Final = "@"

T = TypeVar("T")

Offsets = dict[str, dict[int, int]]


class _Journal(msgspec.Struct, frozen=True):
    offsets: Offsets = msgspec.field(default_factory=dict)


class _ConsumerOffsets(Body, frozen=True):
    offset_table: Offsets = msgspec.field(default_factory=dict)


class _DelayOffsets(Body, frozen=True):
    offset_table: dict[int, int] = msgspec.field(default_factory=dict)


def gather_tables(evidence: Evidence, node: str, root: Path, topics: set[str]) -> None:
    """Add what the tables of a store say about groups that read `topics`, and about delays."""
    config = root / "config"
    for name in (GROUP_JOURNAL_FILE, "consumerOffset.json", "consumerOffset.json.bak"):
        offsets = _offsets(evidence, config / name)
        if offsets is not None:
            _add_groups(evidence, node, str(config / name), offsets, topics)
            return
    evidence.gap(
        f"how far consumer groups are, in {node}",
        f"it has no {config / 'consumerOffset.json'} that can be read",
        "ask the running cluster, or name the directory of a broker",
    )


def gather_delays(evidence: Evidence, node: str, root: Path) -> None:
    """Add how far the delivery of delayed messages is."""
    path = root / "config" / "delayOffset.json"
    table = _read(evidence, path, _DelayOffsets)
    if table is not None:
        evidence.delays.append(
            DelayAt(broker="", node=node, source=str(path), next_offsets=table.offset_table)
        )


def _offsets(evidence: Evidence, path: Path) -> Offsets | None:
    if path.name == GROUP_JOURNAL_FILE:
        journal = _read(evidence, path, _Journal)
        return None if journal is None else journal.offsets
    table = _read(evidence, path, _ConsumerOffsets)
    return None if table is None else table.offset_table


def _read(evidence: Evidence, path: Path, kind: type[T]) -> T | None:
    """Return what a table holds; None if there is none. One that cannot be read is a gap."""
    try:
        if not path.is_file() or path.stat().st_size > TOPIC_TABLE_BYTES_MAX:
            return None
        text, _ = without_checksum(path.name, path.read_bytes())
        return decode_json_body(text, kind)
    except OSError as error:
        evidence.gap(str(path), error.strerror or str(error), "run as the user who owns the store")
    except (UnreadableError, MalformedFrameError) as error:
        evidence.gap(str(path), str(error), "`tandem log verify` says what a node does about it")
    return None


def _add_groups(
    evidence: Evidence, node: str, source: str, offsets: Offsets, topics: set[str]
) -> None:
    evidence.readers_known |= topics
    by_group: dict[str, list[QueueAt]] = {}
    for key, queues in offsets.items():
        topic, _, group = key.rpartition(GROUP_SEPARATOR)
        if topic in topics or topic.startswith("%RETRY%"):
            by_group.setdefault(group, []).extend(
                QueueAt(topic=topic, queue_id=queue_id, committed=offset, node=node)
                for queue_id, offset in queues.items()
            )
    for group, found in sorted(by_group.items()):
        evidence.groups.append(GroupAt(group=group, source=source, queues=tuple(found)))
