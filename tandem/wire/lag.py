"""How far a consumer group is behind in several queues."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def total_lag(lags: Iterable[int]) -> int:
    """Return how many messages of several queues are not consumed yet.

    A queue that a group is past the end of takes nothing off what it has not consumed of others. If
    there is nothing of that kind, this is below 0 by how far the group is past the ends.
    """
    behind = past = 0
    for lag in lags:
        if lag >= 0:
            behind += lag
        else:
            past += lag
    return behind or past
