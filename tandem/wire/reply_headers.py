"""Header records of requests about replies and recalls; see `tandem.wire.request_headers`."""

from __future__ import annotations

import msgspec

from tandem.wire.remoting_command import Int32, Int64
from tandem.wire.request_headers import Header, SendMessageResponseHeader


class RecallableResponseHeader(SendMessageResponseHeader, frozen=True):
    """Answer to a send whose message waits for its time."""

    recall_handle: str | None = None


class RecallMessageRequestHeader(Header, frozen=True):
    """RECALL_MESSAGE."""

    topic: str
    recall_handle: str
    producer_group: str | None = None


class RecallMessageResponseHeader(Header, frozen=True):
    """Answer to it."""

    msg_id: str
    msg_region: str | None = msgspec.field(default=None, name="MSG_REGION")


class ReplyMessageRequestHeader(Header, frozen=True):
    """PUSH_REPLY_MESSAGE_TO_CLIENT."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    born_host: str
    """`ip:port` of the replier."""
    store_host: str
    store_timestamp: Int64
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: bool | None = None
