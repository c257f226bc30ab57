"""Which halves of transactions a record of RMQ_SYS_TRANS_OP_HALF_TOPIC says have ended.

Its body has queue offsets of halves, each with a comma after it. Before 5.x there was one offset to
a record, without a comma.

Source: RocketMQ 5.3.3, TransactionalMessageServiceImpl.getOpMessage, fillOpRemoveMap.
"""

from typing import Final

from tandem.wire.message import MessageExt

REMOVE_TAG: Final = "d"
OFFSET_SEPARATOR: Final = ","

_DIGITS_MAX: Final = 18


def ended_halves(op: MessageExt) -> list[int]:
    """Return the queue offsets in an op message; anything else in it is left out."""
    if op.tags != REMOVE_TAG:
        return []
    pieces = op.body.decode("utf-8", "replace").split(OFFSET_SEPARATOR)
    return [int(piece) for piece in pieces if _is_offset(piece)]


def _is_offset(piece: str) -> bool:
    return piece.isascii() and piece.isdigit() and len(piece) <= _DIGITS_MAX
