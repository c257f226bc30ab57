"""The faults that are in effect in the cluster of a test, and how each ends."""

from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Final, Literal, Self, get_args

import msgspec

from tandem.cluster_file.coordinator_settings import COORDINATOR
from tandem.drill.proxied_pair import PASS, FlowRule

Direction = Literal["both", "out", "in"]
"""Of the bytes of a node or of several: what they send, what they are sent, or both."""


_DIRECTIONS: Final = get_args(Direction)


def slowness(delay_ms: float, bytes_per_second: float) -> FlowRule:
    """The rule of a slow link.

    Raises:
        ValueError: It would not be slow.
    """
    if min(delay_ms, bytes_per_second) < 0 or not max(delay_ms, bytes_per_second):
        raise ValueError(
            f"delay_ms is {delay_ms:g} and bytes_per_second {bytes_per_second:g};"
            " give a positive number for one of them or both"
        )
    return FlowRule(delay_seconds=delay_ms / 1_000, bytes_per_second=bytes_per_second)


class Fault:
    """A fault that is in effect. It ends by `undo`, at the end of a `with`, or with the test."""

    def __init__(self, undo: Callable[[], None]) -> None:
        self._undo: Callable[[], None] | None = undo

    def undo(self) -> None:
        """End it. Nothing happens if it has ended."""
        undo, self._undo = self._undo, None
        if undo is not None:
            undo()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.undo()


class Flow(msgspec.Struct, frozen=True, kw_only=True):
    """The bytes from one node to another, or to or from the coordinator, and their rule."""

    source: str
    target: str
    rule: FlowRule


def combined(faults: Iterable[list[Flow]]) -> list[Flow]:
    """What several faults together mean for each flow: the worst of each kind."""
    rules: dict[tuple[str, str], FlowRule] = {}
    for flow in (flow for flows in faults for flow in flows):
        key = flow.source, flow.target
        rules[key] = _worst(rules.get(key, PASS), flow.rule)
    return [Flow(source=key[0], target=key[1], rule=rule) for key, rule in rules.items()]


def _worst(one: FlowRule, other: FlowRule) -> FlowRule:
    rates = [rate for rate in (one.bytes_per_second, other.bytes_per_second) if rate]
    return FlowRule(
        stalled=one.stalled or other.stalled,
        delay_seconds=max(one.delay_seconds, other.delay_seconds),
        bytes_per_second=min(rates, default=0.0),
    )


def flows_of_partition(
    inside: Iterable[str], nodes: Iterable[str], *, is_fenced: bool, direction: Direction
) -> list[Flow]:
    """The flows between some nodes and all the others, with the coordinator as one of those.

    Raises:
        ValueError: There are none.
    """
    cut_off = set(inside)
    others = [name for name in nodes if name not in cut_off]
    if is_fenced:
        others.append(COORDINATOR)
    if not cut_off or not others:
        raise ValueError("nothing is cut off; name some of the nodes, and not all of them")
    return [
        flow
        for name in sorted(cut_off)
        for other in others
        for flow in flows_of_link(name, other, FlowRule(stalled=True), direction=direction)
    ]


def flows_of_link(node: str, other: str, rule: FlowRule, *, direction: Direction) -> list[Flow]:
    """The flows of one pair; `direction` is as `node` sees it.

    Raises:
        ValueError: There is no such direction.
    """
    if direction not in _DIRECTIONS:
        raise ValueError(f"direction is {direction!r}; give one of {', '.join(_DIRECTIONS)}")
    there = Flow(source=node, target=other, rule=rule)
    back = Flow(source=other, target=node, rule=rule)
    return {"both": [there, back], "out": [there], "in": [back]}[direction]
