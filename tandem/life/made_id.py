"""What a message id says of itself: where a broker stored it, or who made it and when.

    offset id     address 4 or 16 | port 4 | offset in the log 8            of the broker
    unique key    address 4 or 16 | process 2 | salt 4 | ms since the month began 4 | counter 2

Both have 32 or 56 hexadecimal digits. A port has two bytes, and no producer has process 0: so the
two bytes after the address tell one from the other.

Source: RocketMQ 5.3.3, MessageDecoder.createMessageId, MessageClientIDSetter.
"""

import calendar
import datetime as dt
import ipaddress
from typing import Final

import msgspec

from tandem.wire.errors import MalformedMessageError
from tandem.wire.message import decode_offset_msg_id

_PORT_MAX: Final = 65_535
_HOUR_MS: Final = 3_600_000
_ZONES_MS: Final = 14 * _HOUR_MS
"""A month begins at midnight of the producer's zone, which is at most so far from UTC."""


class OffsetId(msgspec.Struct, frozen=True):
    """Where a broker says that it stored a message."""

    host: str
    offset: int


class MadeKey(msgspec.Struct, frozen=True):
    """Who made a unique key. `made_ms` is taken as UTC, and may be off by the zone of the maker."""

    address: str
    process_id: int
    made_ms: int
    zone_ms: int = _ZONES_MS


def offset_id_of(text: str) -> OffsetId | None:
    """Return what an offset id says; None if the text can be none."""
    try:
        host, offset = decode_offset_msg_id(text)
    except (MalformedMessageError, ValueError):
        return None
    if not 0 < host.port <= _PORT_MAX or offset < 0:
        return None
    return OffsetId(str(host), offset)


def made_key_of(text: str, now_ms: int) -> MadeKey | None:
    """Return what a unique key says, seen from `now_ms`; None if the text can be none."""
    try:
        packed = bytes.fromhex(text)
    except ValueError:
        return None
    if len(text) != 2 * len(packed) or len(packed) not in (16, 28):
        return None
    address, rest = packed[:-12], packed[-12:]
    if not any(rest[:2]):
        return None
    made_ms = _nearly(int.from_bytes(rest[6:10], "big"), now_ms)
    if made_ms is None:
        return None
    return MadeKey(str(ipaddress.ip_address(address)), int.from_bytes(rest[:2], "big"), made_ms)


def _nearly(in_month_ms: int, now_ms: int) -> int | None:
    """Return the last moment that is so far into its month. Source: getNearlyTimeFromID."""
    now = dt.datetime.fromtimestamp(now_ms / 1000, dt.UTC)
    days = calendar.monthrange(now.year, now.month)[1]
    if in_month_ms >= 31 * 86_400_000 or days < 1:
        return None
    start = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    if int(start.timestamp()) * 1000 + in_month_ms > now_ms + _ZONES_MS:
        start = (start - dt.timedelta(days=1)).replace(day=1)
    return int(start.timestamp()) * 1000 + in_month_ms
