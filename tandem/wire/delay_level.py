"""Delay levels: how long a message of level n waits, and what its queue unit says instead of tags.

A delayed message is in SCHEDULE_TOPIC_XXXX, queue level - 1, until its time has come. The unit
of that queue carries the deliver time where others carry the tags code.

Source: RocketMQ 5.3.3, ScheduleMessageService.parseDelayLevel and computeDeliverTimestamp,
CommitLog.checkMessageAndReturnSize.
"""

from typing import Final

from tandem.wire.errors import ArgumentError
from tandem.wire.java_numbers import parse_int
from tandem.wire.message_properties import PROPERTY_DELAY_LEVEL, property_value, tags_code_of
from tandem.wire.system_topics import SCHEDULE_TOPIC

MESSAGE_DELAY_LEVEL: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
UNKNOWN_LEVEL_DELAY_MS: Final = 1000

_UNIT_MS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DELAY: Final = PROPERTY_DELAY_LEVEL.encode()


class DelayLevels:
    """The table that a `messageDelayLevel` setting gives; levels count from 1.

    Raises:
        ValueError: the setting cannot be read; the text names the piece.
    """

    def __init__(self, setting: str = MESSAGE_DELAY_LEVEL) -> None:
        self.delays_ms: tuple[int, ...] = tuple(map(_delay_ms, setting.split(" ")))

    @property
    def level_max(self) -> int:
        """The highest level; a larger one in a message means this one."""
        return len(self.delays_ms)

    def delay_ms(self, level: int) -> int:
        """Return how long a message of `level` waits; a second for a level there is not."""
        if 1 <= level <= self.level_max:
            return self.delays_ms[level - 1]
        return UNKNOWN_LEVEL_DELAY_MS

    def dispatch_code(self, topic: str, properties: bytes, store_timestamp_ms: int) -> int:
        """Return what a record's queue unit carries: its deliver time if delayed, else tags code.

        Source: CommitLog.checkMessageAndReturnSize, its part about tagsCode.
        """
        if topic == SCHEDULE_TOPIC:
            level = min(delay_level_of(properties), self.level_max)
            if level > 0:
                return store_timestamp_ms + self.delay_ms(level)
        return tags_code_of(properties)


def delay_level_of(properties: bytes) -> int:
    """Return the DELAY property of a property string; 0 if there is none, or it is no number."""
    value = property_value(properties, _DELAY)
    try:
        return parse_int(str(value, "utf-8", "replace")) if value else 0
    except ValueError:
        return 0


def _delay_ms(piece: str) -> int:
    number, unit = piece[:-1], piece[-1:]
    if not number.isdecimal() or unit not in _UNIT_MS:
        raise ArgumentError(
            f"message_delay_level: {piece!r} is not a delay; write numbers with s, m, h or d,"
            " separated by one space, such as '1s 10s 5m 2h'",
            "message_delay_level",
        )
    return int(number) * _UNIT_MS[unit]
