"""What lies on the disk of a node of a fenced group, and what can become of it while it is down."""

import random
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final

from ha.fenced.epoch_file import EpochFile
from ha.fenced.events import EpochAppended, HAEvent, Promised, TruncationDecided
from ha.fenced.replica_file import ReplicaRecord
from store.machine.checked_file import read_checked_json
from store.recovery.truncation import pending_intent
from tandem.wire.checksum_line import decode_checked_json
from tandem.wire.message import decode_message
from tandem.wire.store_layout import REPLICA_FILE
from tandem.wire.untrusted import UnreadableError
from tests.sim.engine.node import SimulatedNode, read_log
from tests.sim.engine.walked_log import walk_log

FLIPPED_MAX: Final = 6
"""One of so many last records has its bit flipped; they are those that a start looks at."""


def incarnation_of(node: SimulatedNode) -> str:
    """Return the name under which a replica's acknowledgements count; empty if it has none."""
    return _incarnation_in(node.disk.read(f"{node.directory}/{REPLICA_FILE}") or b"{}")


@lru_cache
def _incarnation_in(data: bytes) -> str:
    """Asked for at every answer, and nearly always of the same bytes."""
    with suppress(UnreadableError):
        record = decode_checked_json(REPLICA_FILE, data, dict[str, Any])
        return str(record.get("incarnation", ""))
    return ""


def missing_on_disk(node: SimulatedNode, event: HAEvent) -> str:
    """Return what an event says is on disk, and is not; empty if it is."""
    match event:
        case Promised(epoch):
            path = f"{node.directory}/{REPLICA_FILE}"
            record = read_checked_json(node.disk, path, ReplicaRecord)
            promised = record.promised if record else 0
            return "" if promised >= epoch else f"promise {epoch}, on disk is {promised}"
        case EpochAppended(epoch, start):
            entries = EpochFile(node.disk, node.directory).entries
            is_there = any((e.epoch, e.start) == (epoch, start) for e in entries)
            return "" if is_there else f"epoch {epoch} from {start}, on disk are {entries}"
        case TruncationDecided(cut):
            intent = pending_intent(node.disk, node.directory)
            is_there = intent is not None and intent.cut == cut
            return "" if is_there else f"the intent to cut at {cut}"
        case _:
            return ""


def flip_bit_of_tail(node: SimulatedNode, chance: random.Random) -> str:
    """Flip a bit in the body of one of the last messages: what a CRC is for.

    Returns:
        Where, in words; empty if there is no message.
    """
    data = read_log(node)
    records = walk_log(data).records
    if not records:
        return ""
    file_bytes = node.config.cluster.store.mapped_file_size_commit_log_bytes
    last_file = records[-1].physical_offset // file_bytes
    chosen = chance.choice(
        [r for r in records[-FLIPPED_MAX:] if r.physical_offset // file_bytes == last_file]
    )
    message, _ = decode_message(data, chosen.physical_offset)
    body_at = data.index(message.body, chosen.physical_offset)
    at = chance.randrange(body_at, body_at + len(message.body))
    file = node.disk.open(f"{node.directory}/commitlog/{at - at % file_bytes:020d}")
    file.buffer[at % file_bytes] ^= 1 << chance.randrange(8)
    file.made_durable(file.content)
    return f"byte {at} of {len(data)}"


def lose_epochs(node: SimulatedNode) -> None:
    """Remove the epoch file of a stopped node and its copy."""
    assert not node.is_up
    for suffix in ("", ".bak"):
        node.disk.remove(f"{node.directory}/epochFileCheckpoint{suffix}")
