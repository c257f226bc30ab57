"""One line of an audit trail: JSON, the same from nodes and from the supervisor of a cluster."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec


class AuditLine(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Who has asked whom for what, and what came of it.

    Attributes:
        time: In UTC, as `moment` writes it.
        node: Who was asked: the name of a node, or `supervisor`.
        who: By whom, in words.
        from_: Whence: an address, or a process of this machine.
        code: The number of the request, if it came by the remoting protocol.
        request: Its name.
        result: The name of the answer; `SUCCESS` if it was done.
        about: What it names, as `Topic:Orders`.
        fields: Its fields.
        body: Its body.
        why: Why it was refused or has failed.
        left_out: How many lines like this one are not there.
    """

    time: str
    node: str
    who: str
    from_: str = msgspec.field(name="from")
    code: int | None = None
    request: str
    result: str
    about: list[str] = []
    fields: dict[str, str] = {}
    body: str | None = None
    why: str = ""
    left_out: int = 0

    @property
    def text(self) -> str:
        """What is written."""
        return str(msgspec.json.encode(self), "utf-8")


def moment(wall_clock_ms: int) -> str:
    """Return a time as it is in a line: `2026-11-27T16:50:00.123Z`."""
    when = datetime.fromtimestamp(wall_clock_ms / 1000, UTC)
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")
