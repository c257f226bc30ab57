"""The client: producers, pull consumers and administration, for trio and for plain code."""

from tandem.client.admin import Admin, BlockingAdmin
from tandem.client.errors import (
    BrokerError,
    ClientError,
    CompressedBodyError,
    ConnectionLostError,
    RequestTimeoutError,
    RouteNotFoundError,
    SendTimeoutError,
)
from tandem.client.producer import BlockingProducer, Producer
from tandem.client.pull_consumer import BlockingPullConsumer, PullConsumer
from tandem.client.results import MessageQueue, PullResult, PullStatus, SendResult, SendStatus

__all__ = [
    "Admin",
    "BlockingAdmin",
    "BlockingProducer",
    "BlockingPullConsumer",
    "BrokerError",
    "ClientError",
    "CompressedBodyError",
    "ConnectionLostError",
    "MessageQueue",
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
