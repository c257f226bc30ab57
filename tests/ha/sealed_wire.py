"""Frames and reports as they go over a link whose nonces are n-a and n-b, sealed in order."""

from typing import Final

import msgspec

from ha.fenced.protocol import FrameHeader, Report, encode_frame_header, encode_report
from ha.fenced.seal import FRAMES, NO_DIGEST, REPORTS, Seal, body_digest

SECRET: Final = "secret"
NONCES: Final = ("n-a", "n-b")


class Frame(msgspec.Struct, frozen=True):
    """A frame that is not sealed yet."""

    header: FrameHeader
    body: bytes


def wire(*pieces: Frame | bytes, first: int = 0, digests: bool = True) -> bytes:
    """Seal frames in this order, the first as number `first`; bytes are noise between them."""
    seal = Seal(SECRET, FRAMES, *NONCES)
    for _ in range(first):
        seal.next(b"")
    data = b""
    for piece in pieces:
        if isinstance(piece, bytes):
            data += piece
            continue
        digest = body_digest(piece.body) if piece.body and digests else NO_DIGEST
        head = encode_frame_header(piece.header, piece.body) + digest
        data += head + seal.next(head) + piece.body
    return data


def reports(*said: Report, first: int = 0) -> bytes:
    """Seal reports in this order, the first as number `first`."""
    seal = Seal(SECRET, REPORTS, *NONCES)
    for _ in range(first):
        seal.next(b"")
    data = b""
    for report in said:
        plain = encode_report(report)
        data += plain + seal.next(plain)
    return data
