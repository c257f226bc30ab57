"""What the check makes of a half that is open: young, to be asked about, or to be given up.

Source: RocketMQ 5.3.3, TransactionalMessageServiceImpl.check, .needDiscard, .needSkip.
"""

from __future__ import annotations

import enum

from store.transaction.half_message import check_times, immunity_ms_of
from store.transaction.transaction import TransactionSettings
from tandem.wire.message import MessageExt


class Verdict(enum.Enum):
    """What is to be done about it."""

    LATER = enum.auto()
    """Nothing, and the walk ends here: all halves after it are younger."""

    GIVE_UP = enum.auto()
    IMMUNE = enum.auto()
    """It is put again, so that the walk can go on, and its producer is not asked."""

    ASK = enum.auto()


def verdict_on(
    half: MessageExt, settings: TransactionSettings, now_ms: int, check_began_ms: int
) -> Verdict:
    """Return what is to be done about a half."""
    age_ms = now_ms - half.born_timestamp_ms
    checks = check_times(half)
    if checks >= settings.transaction_check_max or age_ms > settings.file_reserved_time_ms:
        return Verdict.GIVE_UP
    if half.store_timestamp_ms >= check_began_ms:
        return Verdict.LATER
    own_ms = immunity_ms_of(half)
    if own_ms is None:
        is_young = 0 <= age_ms <= settings.transaction_timeout_ms
        return Verdict.LATER if is_young else Verdict.ASK
    immunity_ms = settings.transaction_timeout_ms if own_ms < 0 else own_ms
    return Verdict.IMMUNE if age_ms < immunity_ms else Verdict.ASK
