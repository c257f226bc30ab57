"""The client: producers, pull consumers and administration, for trio and for plain code."""

from tandem.client.ack import Ack
from tandem.client.admin import Admin, BlockingAdmin
from tandem.client.duplicate_filter import DuplicateFilter
from tandem.client.errors import (
    BrokerError,
    ClientError,
    CompressedBodyError,
    ConnectionLostError,
    OffsetBeyondEndError,
    RequestTimeoutError,
    RouteNotFoundError,
    SendTimeoutError,
)
from tandem.client.producer import BlockingProducer, Producer
from tandem.client.pull_consumer import BlockingPullConsumer, PullConsumer
from tandem.client.results import MessageQueue, PullResult, PullStatus, SendResult, SendStatus

__all__ = [
    "Ack",
    "Admin",
    "BlockingAdmin",
    "BlockingProducer",
    "BlockingPullConsumer",
    "BrokerError",
    "ClientError",
    "CompressedBodyError",
    "ConnectionLostError",
    "DuplicateFilter",
    "MessageQueue",
    "OffsetBeyondEndError",
    "Producer",
    "PullConsumer",
    "PullResult",
    "PullStatus",
    "RequestTimeoutError",
    "RouteNotFoundError",
    "SendResult",
    "SendStatus",
    "SendTimeoutError",
]
