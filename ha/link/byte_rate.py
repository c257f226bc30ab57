"""How many bytes went by in the last whole second, for people to look at."""


class ByteRate:
    """Counts by whole seconds of the caller's clock."""

    def __init__(self) -> None:
        self._second = 0
        self._bytes = 0
        self._bytes_before = 0

    def add(self, size_bytes: int, now: float) -> None:
        """Count bytes that went by at `now`."""
        self._move_to(int(now))
        self._bytes += size_bytes

    def in_last_second(self, now: float) -> int:
        """Return the bytes of the whole second before the one that `now` is in."""
        self._move_to(int(now))
        return self._bytes_before

    def _move_to(self, second: int) -> None:
        if second != self._second:
            self._bytes_before = self._bytes if second == self._second + 1 else 0
            self._bytes = 0
            self._second = second
