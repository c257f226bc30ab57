"""What a broker may say."""

from typing import Final

from tandem.wire.ha_status import FencedStatus

FENCED_STATUS: Final = FencedStatus(
    node="a",
    group="broker-a",
    role="MASTER",
    epoch=3,
    log_epoch=3,
    master="a",
    incarnation="i",
    promised=3,
    log_start=0,
    log_end=10,
    flushed=10,
    confirm=10,
    min_isr=2,
    ack_level="written",
    isr=["a", "b"],
    lease_left_ms=4000,
)
