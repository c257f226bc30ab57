"""Response codes, with the meaning that clients give them.

Requests and responses are separate number spaces: a request 17 creates a topic, a response 17 says
that there is none.
"""

import enum


class ResponseCode(enum.IntEnum):
    """How a request ended. Source: RocketMQ 5.3.3, ResponseCode and RemotingSysResponseCode."""

    SUCCESS = 0
    SYSTEM_ERROR = 1
    """Anything unexpected. A producer tries again."""
    SYSTEM_BUSY = 2
    """Overload, or a node that is not the master was asked. A producer tries again."""
    REQUEST_CODE_NOT_SUPPORTED = 3
    FLUSH_DISK_TIMEOUT = 10
    """The message is in the log, but was not flushed in time."""
    SLAVE_NOT_AVAILABLE = 11
    """The message is in the log, but no slave was there to take it."""
    FLUSH_SLAVE_TIMEOUT = 12
    """The message is in the log, but too few slaves acknowledged it in time."""
    MESSAGE_ILLEGAL = 13
    SERVICE_NOT_AVAILABLE = 14
    """The store refuses: stopping, full, or not the master's. A producer tries again."""
    NO_PERMISSION = 16
    TOPIC_NOT_EXIST = 17
    PULL_NOT_FOUND = 19
    """Nothing new. The broker has already waited as long as it was allowed to."""
    PULL_RETRY_IMMEDIATELY = 20
    """Messages were there, none matched. Go on at nextBeginOffset."""
    PULL_OFFSET_MOVED = 21
    """The offset is outside of the queue. nextBeginOffset is the nearest one inside."""
    QUERY_NOT_FOUND = 22
    SUBSCRIPTION_PARSE_FAILED = 23
    SUBSCRIPTION_NOT_EXIST = 24
    SUBSCRIPTION_NOT_LATEST = 25
    SUBSCRIPTION_GROUP_NOT_EXIST = 26
    FILTER_DATA_NOT_EXIST = 27
    FILTER_DATA_NOT_LATEST = 28
    INVALID_PARAMETER = 29
    CONSUMER_NOT_ONLINE = 206
    CONSUME_MSG_TIMEOUT = 207
    """A client did not answer what it was asked for somebody else."""
    NO_MESSAGE = 208
    """There is no message at the offset that a receipt handle names."""
    POLLING_FULL = 209
    """A pop found nothing, and too many are held to hold this one."""
    POLLING_TIMEOUT = 210
    """A pop found nothing in its time."""
    ILLEGAL_OPERATION = 604
    """The transaction may not be ended any more without being asked about."""
