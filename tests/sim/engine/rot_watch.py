"""Watches what nodes make of damage for as long as it is open.

    bad       a byte that is not what it was before it rotted, as the page cache shows it
    noted     in the node's `damage.json`: the node knows of it, now and after a restart

It is noted since when that is so: what was read just before a note may leave a node after it.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
import trio

from store.log.damage import BadRange
from store.machine.checked_file import read_checked_json
from tandem.wire.message import Host
from tandem.wire.store_layout import DAMAGE_FILE
from tests.sim.engine.history import History
from tests.sim.engine.node import SimulatedNode
from tests.sim.engine.whole_disk import Rot, bad_offsets

LOOK_SECONDS: Final = 0.1
IN_FLIGHT_SECONDS: Final = 2.0
"""What was read just before a note may leave a node after it."""


class Known(msgspec.Struct):
    """What one node had noted at the last look, and what of it was bad."""

    directory: str
    """Tells this directory from another one of the same node; see `RotWatch.directory_of`."""
    ranges: tuple[BadRange, ...]
    bad: dict[str, frozenset[int]]
    """By the path of the file: physical offsets."""
    since: dict[tuple[int, int], float]
    """Since when each range that has a bad byte is noted."""


class RotWatch:
    """Sees all nodes of one group, and writes the history."""

    def __init__(self, nodes: Mapping[str, SimulatedNode], history: History) -> None:
        self._nodes = nodes
        self._seen = history
        self._known: dict[str, Known] = {}
        self._told: set[tuple[str, str, str]] = set()

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await trio.sleep(LOOK_SECONDS)
            self.look()

    def look(self) -> None:
        """See what has changed since the last look."""
        for node in self._nodes.values():
            self.look_at(node)

    def look_at(self, node: SimulatedNode) -> None:
        """See what a node has noted; to be called also when it has healed something."""
        if node.rots:
            self._look_at(node, trio.current_time())
        else:
            self._known.pop(node.name, None)

    def directory_of(self, node: SimulatedNode) -> str:
        """Return what becomes another one when a node goes on with another directory."""
        del node
        return ""

    # What is noted

    def _look_at(self, node: SimulatedNode, now: float) -> None:
        ranges = ranges_noted(node)
        bad = {rot.path: frozenset(bad_offsets(rot, node.disk)) for rot in node.rots}
        known = Known(self.directory_of(node), ranges, bad, {})
        before = self._known.get(node.name)
        if before is not None and before.directory == known.directory:
            for rot in node.rots:
                self._expect_no_false_healing(rot, before, known)
            known.since = before.since
        everywhere = frozenset[int]().union(*bad.values())
        known.since = {
            (found.start, found.end): known.since.get((found.start, found.end), now)
            for found in ranges
            if _is_any_in(everywhere, (found,))
        }
        self._known[node.name] = known

    def _expect_no_false_healing(self, rot: Rot, before: Known, known: Known) -> None:
        """What was noted, was bad and is bad has to be noted yet."""
        still = before.bad.get(rot.path, frozenset()) & known.bad[rot.path]
        dropped = [
            offset
            for offset in sorted(still)
            if _is_any_in((offset,), before.ranges) and not _is_any_in((offset,), known.ranges)
        ]
        if dropped and self._is_news("healed", rot):
            text = f"{rot.where}: taken for whole again at {trio.current_time():.3f}"
            self._seen.falsely_whole.append(f"{text}, but is bad at {dropped[0]}")

    def _is_news(self, what: str, rot: Rot) -> bool:
        about = (what, rot.node, rot.where)
        is_news = about not in self._told
        self._told.add(about)
        return is_news

    def noted_since(self, name: str) -> float | None:
        """Return since when a node has noted something that is bad; None if it has not."""
        known = self._known.get(name)
        return min(known.since.values()) if known is not None and known.since else None

    # What nodes say of themselves

    def noted(self, node: SimulatedNode) -> frozenset[BadRange]:
        """Return what a node has noted now that really is bad."""
        everywhere = [offset for rot in node.rots for offset in bad_offsets(rot, node.disk)]
        return frozenset(found for found in ranges_noted(node) if _is_any_in(everywhere, (found,)))

    def told_status(self, node: SimulatedNode, noted: frozenset[BadRange], damage: str) -> None:
        """Take what a node says is damaged; `noted` is from before it was asked, in one life."""
        left = noted & self.noted(node)
        if left and not damage:
            found = min(left, key=lambda each: each.start)
            text = f"{node.name} at {trio.current_time():.3f}: it says that nothing is damaged, and"
            self._seen.forgotten.append(
                f"{text} has noted {found.start} to {found.end} ({found.reason})"
            )

    def was_sent(self, node: SimulatedNode, source: Host, target: Host, data: bytes) -> None:
        """See that nothing leaves a node that it knows to be bad, or ought to."""
        now = trio.current_time()
        for rot in node.rots:
            if not any(window in data for window in rot.windows):
                continue
            known = self._known.get(node.name)
            since = known.since if known is not None else {}
            offset = rot.start + rot.at
            noted = min((at for (s, e), at in since.items() if s <= offset < e), default=now)
            why = f"noted since {noted:.3f}" if noted <= now - IN_FLIGHT_SECONDS else ""
            why = why or self.why_not_send(node, rot, source, target)
            if why and self._is_news("sent", rot):
                text = f"{rot.where}: sent to {target} at {now:.3f}"
                self._seen.handed_out.append(f"{text}, {why}")

    def why_not_send(self, node: SimulatedNode, rot: Rot, source: Host, target: Host) -> str:
        """Return why a node ought to have known that a file was hurt; "" if it had not to."""
        del node, rot, source, target
        return ""


def ranges_noted(node: SimulatedNode) -> tuple[BadRange, ...]:
    """Return what a node has noted as bad."""
    path = f"{node.directory}/{DAMAGE_FILE}"
    return read_checked_json(node.disk, path, tuple[BadRange, ...]) or ()


def _is_any_in(offsets: Iterable[int], ranges: Iterable[BadRange]) -> bool:
    return any(found.start <= offset < found.end for found in ranges for offset in offsets)
