"""Which members of a group have a whole log, and what one with a damaged log leaves to them.

A node is *damaged* while bytes of its log are known to be bad (`store.log.damage`). All the rest
of its log counts as before: it follows, acknowledges, and serves what is whole. But a whole member
goes first in elections, and a damaged master gives its place to one.

Damage is no loss: a bad range is healed from others. So where no whole member is there, or none of
them becomes master in time, a damaged one does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tandem.wire.group_state import NodeRecord

WHOLE_FIRST_SECONDS: Final = 10.0
"""How long a damaged node leaves the field to whole ones, after the group has lost its master."""


def whole_members(
    isr: Mapping[str, str], nodes: Mapping[str, NodeRecord], *, but: str
) -> list[str]:
    """Return the other members that live as recorded, may become master, and have a whole log."""
    return [
        name
        for name, incarnation in sorted(isr.items())
        if name != but
        and name in nodes
        and nodes[name].incarnation == incarnation
        and not nodes[name].trouble
        and not nodes[name].damage
    ]
