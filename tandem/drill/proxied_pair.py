"""What a fault proxy is between, and what it may do to bytes: records, without the proxy."""

from typing import Final

import msgspec


class ProxiedPair(msgspec.Struct, frozen=True, kw_only=True):
    """Who dials whom, where the proxy listens for it, and which ports it serves."""

    source: str
    source_address: str
    """Dialled on from here; empty: the system chooses."""
    target: str
    target_address: str
    listen_address: str
    ports: tuple[int, ...]


class FlowRule(msgspec.Struct, frozen=True, kw_only=True):
    """What happens to the bytes of a flow."""

    stalled: bool = False
    delay_seconds: float = 0.0
    bytes_per_second: float = 0.0
    """0: as fast as they come."""


PASS: Final = FlowRule()
