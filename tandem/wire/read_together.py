"""What has come over several connections at once, as one piece of memory."""

from __future__ import annotations

from array import array
from itertools import accumulate
from typing import NamedTuple


class ReadTogether(NamedTuple):
    """What each of several connections has sent, one behind the other.

    Attributes:
        data: All of it.
        starts: Where that of each connection starts. It is moved by whoever takes something.
        ends: Where it ends.
    """

    data: bytes
    starts: array[int]
    ends: array[int]

    @classmethod
    def of(cls, parts: list[bytes]) -> ReadTogether:
        """Put together what has come by itself."""
        ends = array("q", accumulate(map(len, parts)))
        return cls.up_to(b"".join(parts), ends)

    @classmethod
    def up_to(cls, data: bytes, ends: array[int]) -> ReadTogether:
        """Nothing is taken of data that has these ends."""
        return cls(data, array("q", (0, *ends))[:-1], ends)

    @property
    def is_used_up(self) -> bool:
        """Whether everything is taken."""
        return self.starts == self.ends

    def rest(self, number: int) -> bytes:
        """Return what nobody has taken of what one connection has sent."""
        return self.data[self.starts[number] : self.ends[number]]
