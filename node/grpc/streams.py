"""What there is to know of one stream of HTTP/2, and what happens on it."""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

STREAM_WINDOW_BYTES: Final = 1024 * 1024
"""That a peer may send of one stream before we say that there is room for more."""


class Opened(msgspec.Struct, frozen=True):
    """A stream has begun."""

    stream_id: int
    headers: dict[str, str]


class Received(msgspec.Struct, frozen=True):
    """Data of a stream."""

    stream_id: int
    data: memoryview


class Ended(msgspec.Struct, frozen=True):
    """The peer sends no more on a stream."""

    stream_id: int


class WasReset(msgspec.Struct, frozen=True):
    """A stream is over before its time; nothing more can be sent on it.

    Attributes:
        unsent_count: How many pieces of data were to be sent that the peer has not got as a whole.
    """

    stream_id: int
    unsent_count: int = 0


class Quiet(msgspec.Struct, frozen=True):
    """Some frames have said nothing to calls; there may be more."""


Event: TypeAlias = Opened | Received | Ended | WasReset | Quiet


class Stream:
    """What is known of an open stream."""

    def __init__(self, send_window: int) -> None:
        self.send_window = send_window
        self.receive_window = STREAM_WINDOW_BYTES
        self.has_peer_ended = False
        self.is_answered = False
        """Whether our side has said all, though some of it may wait."""
        self.waiting: list[tuple[bytes, bool]] = []
        """Frames of headers (True) and data that wait for the peer's window."""
        self.waiting_at = 0
        """How much of the first data has been sent."""
