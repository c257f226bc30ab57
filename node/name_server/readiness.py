"""Whether a name server that has just started knows enough to answer for the whole cluster. Pure.

    NEW --+-- every group has a master here, or all of its nodes ----> READY, until it ends
          +-- NOT_READY_SECONDS_MAX have passed --> ALONE --+-- the same --^

Nothing of a route is on disk: a name server that starts knows nobody, and the node beside it is the
first to register. What it would say then is true and still misleads: a route without a master, or
without another group's queues; or, while a table comes in parts, that there is no such topic. The
other nodes register within a moment if they are up. If they are down, the bound ends the wait, and
what is here is served. But while it knows no master at all it never says that there is no such
topic: the node beside it may not know it yet.

Source: RocketMQ 5.3.3, ClientRequestProcessor.getRouteInfoByTopic, with needWaitForService and
waitSecondsForService (45 s): a name server that has just started answers SYSTEM_ERROR, "name
remoting not ready", and clients keep the route they have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from node.name_server.route_table import RouteTable

NOT_READY_SECONDS_MAX: Final = 5.0
"""A node that is up registers with one that has just started at once, or after a second if it did
not hear of the start."""


class Readiness:
    """What one name server waits for. Time is that of the route table."""

    def __init__(self, routes: RouteTable, groups: Mapping[str, Sequence[str]], now: float) -> None:
        """Wait for the `groups` of the cluster: their names, and the addresses of their nodes."""
        self._routes = routes
        self._groups = groups
        self._until = now + NOT_READY_SECONDS_MAX
        self._is_ready = False

    def why_not(self, now: float, *, is_known: bool) -> str | None:
        """Return whom this name server has not heard of yet, in words; None if it may answer.

        `is_known`: whether what it would answer is a route, and not that there is none.
        """
        if self._is_ready:
            return None
        partial = [group for group in self._groups if self._routes.is_partial(group)]
        if partial and not is_known:
            return (
                "this name server has not been up for long enough: topics of"
                f" {', '.join(partial)} are still coming; ask another, or again in a second"
            )
        missing = [
            f"{group} (not heard of: {', '.join(silent)})"
            for group, addresses in self._groups.items()
            if not self._routes.has_master(group) and (silent := self._silent(addresses))
        ]
        self._is_ready = not missing and not partial
        has_a_master = any(self._routes.has_master(group) for group in self._groups)
        left_seconds = self._until - now
        if not missing or (left_seconds <= 0 and (is_known or has_a_master)):
            return None
        remedy = f"again in {left_seconds:.1f} s" if left_seconds > 0 else "start them"
        return (
            "this name server has not been up for long enough to know a master of"
            f" {'; '.join(missing)}; ask another, or {remedy}"
        )

    def _silent(self, addresses: Sequence[str]) -> list[str]:
        return [address for address in addresses if not self._routes.is_live(address)]
