"""How far the log of a node of a fenced group is confirmed, by the files of its store.

    replica.json, epochIds    nodes of fenced groups have them, and no others
    checkpoint                up to where the node knows its log to be confirmed: written once a
                              second while it runs, and when it stops

No change of master cuts off what is below; it may cut off all that is past it, and then no message
of that was ever there. A number that is old is too low and never wrong, so it has to be read before
the files of the log are looked at: bytes that were there before it was written may be others now.

Only the log of a store that has none of this counts to its end: that of a classic group, of
RocketMQ, of a shadow, or a directory with nothing but files of a log.
"""

from typing import Final

from tandem.spark.commitlog.places import StorePlace
from tandem.spark.errors import NotAStoreError, StoreFault
from tandem.wire.checkpoint_copy import settled
from tandem.wire.store_layout import CHECKPOINT_BYTES, EPOCH_IDS_FILE, REPLICA_FILE

CHECKPOINT_FILE: Final = "checkpoint"
NUMBERS: Final = 6
"""Of a checkpoint: RocketMQ's five, and the one that is ours."""
OWN: Final = 1

_OF_FENCED_NODES: Final = frozenset({REPLICA_FILE, EPOCH_IDS_FILE})


def confirmed_end(place: StorePlace) -> int | None:
    """Return the physical offset below which a log is confirmed; None: nothing bounds it.

    Raises:
        NotAStoreError: the store is that of a fenced node, and its checkpoint is missing.
    """
    if not place.root:
        return None
    try:
        names = {entry.name for entry in place.storage.entries(place.root)}
    except (FileNotFoundError, NotADirectoryError):
        return None
    is_fenced = not _OF_FENCED_NODES.isdisjoint(names)
    if CHECKPOINT_FILE not in names:
        if is_fenced:
            raise NotAStoreError(
                f"{place.name} is the store of a node of a fenced group, and its file"
                f" {CHECKPOINT_FILE} is missing, which says how much of the log is confirmed: copy"
                " it, too, or read all there is with includeUnconfirmed=true",
                StoreFault.NO_CHECKPOINT,
            )
        return None
    confirmed = _number_in(place)
    return confirmed if is_fenced or confirmed else None


def _number_in(place: StorePlace) -> int:
    data = bytearray(CHECKPOINT_BYTES)
    with place.storage.opened(place.beside(CHECKPOINT_FILE)) as opened:
        opened.read_into(memoryview(data), 0)
    return max(settled(bytes(data), NUMBERS, OWN).numbers[-1], 0)
