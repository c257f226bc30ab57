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
    end: dict[int, int] = {}
    for queue, offset in ours:
        end[queue] = max(offset, end.get(queue, -1))
    count = 0
    found: Counter[str] = Counter()
    examples: list[str] = []
    seen: set[Place] = set()
    last: dict[int, int] = {}

    def note(what: str, place: Place, keys: str, more: str = "") -> None:
        found[what] += 1
        if len(examples) < EXAMPLES_MAX:
            examples.append(f"{what}: queue {place[0]}, offset {place[1]}, keys '{keys}'{more}")

    for place, content in deliveries:
        count += 1
        queue, offset = place
        expected = ours.get(place)
        if expected is None and not is_whole and offset > end.get(queue, -1):
            pass  # ours would have read it a moment later
        elif expected is None:
            note("unknown", place, content[0])
        elif expected != content:
            note("different", place, content[0], f"; ours read '{expected[0]}'")
        if place in seen:
            found["repeated"] += 1
            continue
        seen.add(place)
        if offset < last.get(queue, -1):
            note("out_of_order", place, content[0], f"; given after offset {last[queue]}")
        last[queue] = max(offset, last.get(queue, -1))
    for place in sorted(ours.keys() - seen):
        if place[1] < last.get(place[0], -1):
            note("missing", place, ours[place][0])
    return WitnessSummary(client=client, deliveries=count, examples=tuple(examples), **found)
