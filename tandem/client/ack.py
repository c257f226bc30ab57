"""What a producer may ask a send to wait for: three contracts.

What an answer SEND_OK then means, in a fenced group of three nodes with `min_isr` 2:

    contract              SEND_OK says the message is       it survives
    ASYNC                 in the master's page cache        a killed process of the master, if no
                                                            other node takes over meanwhile
    REPLICATED            in the log of every in-sync       the loss of any one node, by whatever
                          replica, at least two of them     fault; of all, as far as the group's
                                                            ack_level says: `written` not a power
                                                            cut of all machines at once
    REPLICATED_FLUSHED    on the disk of each of them       a power cut of all machines at once

A classic group keeps RocketMQ's meaning: ASYNC is a send with WAIT=false, REPLICATED one with
WAIT=true, which waits as `broker_role` and `flush_disk_type` say. It does not know
REPLICATED_FLUSHED, nor does a broker of RocketMQ: they take it for REPLICATED.
"""

import enum
from typing import Final

from tandem.wire.message_properties import ACK_FLUSHED, PROPERTY_ACK, PROPERTY_WAIT_STORE_MSG_OK


class Ack(enum.StrEnum):
    """What a send waits for; see the table above."""

    ASYNC = "async"
    REPLICATED = "replicated"
    REPLICATED_FLUSHED = "replicated-flushed"


_WAIT: Final = f"{PROPERTY_WAIT_STORE_MSG_OK}\x01true\x02"

ACK_PROPERTIES: Final = {
    Ack.ASYNC: f"{PROPERTY_WAIT_STORE_MSG_OK}\x01false\x02",
    Ack.REPLICATED: _WAIT,
    Ack.REPLICATED_FLUSHED: f"{_WAIT}{PROPERTY_ACK}\x01{ACK_FLUSHED}\x02",
}
"""Each contract as message properties."""


def chosen_ack(
    ack: Ack | None, *, wait: bool | None, message_wait: bool | None, default: Ack
) -> Ack:
    """Return the contract of one send; what is said more closely wins, `ack` over WAIT.

    WAIT=true asks for the producer's own contract, and at least for REPLICATED.
    """
    if ack is not None:
        return ack
    wanted = message_wait if wait is None else wait
    if wanted is None:
        return default
    if not wanted:
        return Ack.ASYNC
    return Ack.REPLICATED if default is Ack.ASYNC else default
