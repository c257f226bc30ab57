"""Makes a store that of a node of a fenced group, as far as readers of its files can see."""

from pathlib import Path

from tandem.wire.checkpoint_copy import pieces_of
from tandem.wire.store_layout import CHECKPOINT_BYTES, REPLICA_FILE

OWN = 1


def note_confirmed(root: Path, offset: int) -> None:
    """Say that the log in `root` is confirmed up to `offset`, as its node would."""
    (root / REPLICA_FILE).touch()
    write_checkpoint(root, offset)


def write_checkpoint(root: Path, offset: int) -> None:
    """Write a checkpoint alone; 0 is that of a node of a classic group."""
    content = bytearray(CHECKPOINT_BYTES)
    for at, piece in pieces_of((1, 2, 3, 4, 5, offset), OWN):
        content[at : at + len(piece)] = piece
    (root / "checkpoint").write_bytes(content)
