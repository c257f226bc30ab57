"""The ext fields of the requests of POP, and of their answers.

A broker hands messages out one by one and keeps them from others for a while, the invisible time;
see `tandem.wire.receipt_handle` and `tandem.wire.pop_offsets` for what names them.

Source: RocketMQ 5.3.3, org.apache.rocketmq.remoting.protocol.header, PopMessageRequestHeader and
so on.
"""

from __future__ import annotations

from typing import Final

from tandem.wire.remoting_command import Int32, Int64
from tandem.wire.request_headers import Header

ANY_QUEUE: Final = -1
"""In place of a queue: all of the topic."""

POP_MAX_MSG_NUMS: Final = 32
"""Messages of one pop. Source: PopMessageProcessor.processRequest."""

INIT_MODE_MIN: Final = 0
INIT_MODE_MAX: Final = 1
"""Where a group begins in a queue that it never read. Source: ConsumeInitMode."""


class PopMessageRequestHeader(Header, frozen=True):
    """POP_MESSAGE. Times are in milliseconds."""

    consumer_group: str
    topic: str
    queue_id: Int32
    """`ANY_QUEUE`, or one."""
    max_msg_nums: Int32
    invisible_time: Int64
    poll_time: Int64
    """How long the broker may hold the request if there is nothing."""
    init_mode: Int32
    born_time: Int64 | None = None
    """When it was made, in ms since 1970 by the client's clock; 0 or None: the broker takes its
    own."""
    exp_type: str | None = None
    exp: str | None = None
    order: bool | None = None
    attempt_id: str | None = None
    """Popped in order: a request with the id of the last one gets the same messages again."""


class PopMessageResponseHeader(Header, frozen=True):
    """Answer to a pop, to one that found nothing too."""

    pop_time: Int64
    invisible_time: Int64
    revive_qid: Int32
    rest_num: Int64
    """How many messages are left, about."""
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None


class PeekMessageRequestHeader(Header, frozen=True):
    """PEEK_MESSAGE: what a pop would give, without taking it. It is answered as a pop is."""

    consumer_group: str
    topic: str
    queue_id: Int32
    max_msg_nums: Int32


class AckMessageRequestHeader(Header, frozen=True):
    """ACK_MESSAGE. `topic` is the one in which the message is, a retry topic perhaps."""

    consumer_group: str
    topic: str
    queue_id: Int32
    extra_info: str
    """The receipt handle."""
    offset: Int64


class AckMessageResponseHeader(Header, frozen=True):
    """Ours: answer to ACK_MESSAGE and BATCH_ACK_MESSAGE where a handle was not good any more.

    The message was acknowledged before, or its time was over. RocketMQ's brokers do not say so.
    """

    is_stale: bool | None = None


class ChangeInvisibleTimeRequestHeader(Header, frozen=True):
    """CHANGE_MESSAGE_INVISIBLETIME: the message comes again so many ms from now."""

    consumer_group: str
    topic: str
    queue_id: Int32
    extra_info: str
    offset: Int64
    invisible_time: Int64
    keeps_handle: bool | None = None
    """Ours: the handle stays good. RocketMQ's brokers do not know it."""


class ChangeInvisibleTimeResponseHeader(Header, frozen=True):
    """Answer to it: what of the handle is new."""

    pop_time: Int64
    invisible_time: Int64
    revive_qid: Int32


class NotificationRequestHeader(Header, frozen=True):
    """NOTIFICATION: whether a pop would find something, now or within `poll_time` ms."""

    consumer_group: str
    topic: str
    queue_id: Int32
    poll_time: Int64
    born_time: Int64
    order: bool | None = None
    attempt_id: str | None = None


class NotificationResponseHeader(Header, frozen=True):
    """Answer to it. `polling_full`: the broker holds too many requests to hold this one."""

    has_msg: bool
    polling_full: bool


class PollingInfoRequestHeader(Header, frozen=True):
    """POLLING_INFO: how many requests of a group are held."""

    consumer_group: str
    topic: str
    queue_id: Int32


class PollingInfoResponseHeader(Header, frozen=True):
    """Answer to it."""

    polling_num: Int32
