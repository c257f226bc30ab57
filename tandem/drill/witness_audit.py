"""What another client was given, compared with what ours has read: the same, or somebody is wrong.

A group is given each message at least once: again after a failover, which is counted and allowed.
What the witness has not reached yet at the end is waited for, and not judged here.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from tandem.drill.stream_audit import EXAMPLES_MAX, Content, Place

WITNESS_COUNTS: Final = ("missing", "different", "unknown", "out_of_order")


class WitnessSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The counts of a second witness. All but `deliveries` and `repeated` have to be 0.

    `missing` messages were read by our consumers, and the witness was given a later one of the
    queue instead; `different` ones have other keys or another body; `unknown` ones were given to
    the witness alone. `out_of_order`: given for the first time after a later one of its queue.
    """

    client: str
    deliveries: int
    repeated: int = 0
    missing: int = 0
    different: int = 0
    unknown: int = 0
    out_of_order: int = 0
    examples: tuple[str, ...] = ()

    @property
    def promises_broken(self) -> int:
        """All of them together."""
        return sum(getattr(self, name) for name in WITNESS_COUNTS)

    def broken(self) -> list[tuple[str, int]]:
        """The counts above 0, with their names."""
        counts = [(name, getattr(self, name)) for name in WITNESS_COUNTS]
        return [(f"witness_{name}", count) for name, count in counts if count]


def compare_witness(
    client: str,
    deliveries: Iterable[tuple[Place, Content]],
    ours: Mapping[Place, Content],
    *,
    is_whole: bool = True,
) -> WitnessSummary:
    """Compare what a client was given, in its order, with what our consumers have read.

    Unless that is the `is_whole` topic, the witness may be ahead of them.
    """
    comparison = _Comparison(ours, is_whole=is_whole)
    for place, content in deliveries:
        comparison.given(place, content)
    comparison.end()
    return WitnessSummary(
        client=client,
        deliveries=comparison.deliveries,
        examples=tuple(comparison.examples),
        **comparison.found,
    )


class _Comparison:
    """Deliveries, one after the other, against what is known."""

    def __init__(self, ours: Mapping[Place, Content], *, is_whole: bool) -> None:
        self.deliveries = 0
        self.found: Counter[str] = Counter()
        self.examples: list[str] = []
        self._ours = ours
        self._is_whole = is_whole
        self._seen: set[Place] = set()
        self._last: dict[int, int] = {}
        self._end: dict[int, int] = {}
        for queue, offset in ours:
            self._end[queue] = max(offset, self._end.get(queue, -1))

    def given(self, place: Place, content: Content) -> None:
        """Take the next delivery."""
        self.deliveries += 1
        queue, offset = place
        expected = self._ours.get(place)
        is_ahead = not self._is_whole and offset > self._end.get(queue, -1)
        if expected is None and not is_ahead:
            self._note("unknown", place, content[0])
        elif expected is not None and expected != content:
            self._note("different", place, content[0], f"; ours read '{expected[0]}'")
        if place in self._seen:
            self.found["repeated"] += 1
            return
        self._seen.add(place)
        last = self._last.get(queue, -1)
        if offset < last:
            self._note("out_of_order", place, content[0], f"; given after offset {last}")
        self._last[queue] = max(offset, last)

    def end(self) -> None:
        """Look for what was passed over."""
        for place in sorted(self._ours.keys() - self._seen):
            if place[1] < self._last.get(place[0], -1):
                self._note("missing", place, self._ours[place][0])

    def _note(self, what: str, place: Place, keys: str, more: str = "") -> None:
        self.found[what] += 1
        if len(self.examples) < EXAMPLES_MAX:
            where = f"queue {place[0]}, offset {place[1]}, keys '{keys}'"
            self.examples.append(f"{what}: {where}{more}")
