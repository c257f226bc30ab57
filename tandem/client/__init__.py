"""The client: producers, pull consumers and administration, for trio and for plain code.

The names below are loaded when first used: a worker of Spark that pulls records pays for no
producer and no group.
"""

import importlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tandem.client.ack import Ack
    from tandem.client.admin import Admin, BlockingAdmin
    from tandem.client.blocking_consumer import BlockingConsumer
    from tandem.client.blocking_producer import BlockingProducer
    from tandem.client.cluster_access import ClusterAccess
    from tandem.client.consumer import Consumer
    from tandem.client.duplicate_filter import DuplicateFilter
    from tandem.client.errors import (
        BrokerError,
        ClientError,
        CompressedBodyError,
        ConnectionCause,
        ConnectionLostError,
        GroupNotFoundError,
        MessageDamagedError,
        MessageNotFoundError,
        NotOpenError,
        OffsetBeyondEndError,
        OffsetsFileError,
        ReplyTimeoutError,
        RequestTimeoutError,
        RouteCause,
        RouteNotFoundError,
        SendInDoubtError,
        SendTimeoutError,
        UserExistsError,
        UserNotFoundError,
    )
    from tandem.client.popped_message import PoppedMessage
    from tandem.client.producer import Producer
    from tandem.client.pull_consumer import BlockingPullConsumer, PullConsumer
    from tandem.client.received_message import ReceivedMessage
    from tandem.client.results import MessageQueue, PullResult, PullStatus, SendResult, SendStatus
    from tandem.client.simple_consumer import BlockingSimpleConsumer, SimpleConsumer
    from tandem.client.subscription import Subscription
    from tandem.client.transaction import Transaction
    from tandem.client.transaction_flow import TransactionState
    from tandem.client.user_admin import UserDescription

_HOMES: Final = {
    "Ack": "tandem.client.ack",
    "Admin": "tandem.client.admin",
    "BlockingAdmin": "tandem.client.admin",
    "BlockingConsumer": "tandem.client.blocking_consumer",
    "BlockingProducer": "tandem.client.blocking_producer",
    "BlockingPullConsumer": "tandem.client.pull_consumer",
    "BlockingSimpleConsumer": "tandem.client.simple_consumer",
    "BrokerError": "tandem.client.errors",
    "ClientError": "tandem.client.errors",
    "ClusterAccess": "tandem.client.cluster_access",
    "CompressedBodyError": "tandem.client.errors",
    "ConnectionCause": "tandem.client.errors",
    "ConnectionLostError": "tandem.client.errors",
    "Consumer": "tandem.client.consumer",
    "DuplicateFilter": "tandem.client.duplicate_filter",
    "GroupNotFoundError": "tandem.client.errors",
    "MessageDamagedError": "tandem.client.errors",
    "MessageNotFoundError": "tandem.client.errors",
    "MessageQueue": "tandem.client.results",
    "NotOpenError": "tandem.client.errors",
    "OffsetBeyondEndError": "tandem.client.errors",
    "OffsetsFileError": "tandem.client.errors",
    "PoppedMessage": "tandem.client.popped_message",
    "Producer": "tandem.client.producer",
    "PullConsumer": "tandem.client.pull_consumer",
    "PullResult": "tandem.client.results",
    "PullStatus": "tandem.client.results",
    "ReceivedMessage": "tandem.client.received_message",
    "ReplyTimeoutError": "tandem.client.errors",
    "RequestTimeoutError": "tandem.client.errors",
    "RouteCause": "tandem.client.errors",
    "RouteNotFoundError": "tandem.client.errors",
    "SendInDoubtError": "tandem.client.errors",
    "SendResult": "tandem.client.results",
    "SendStatus": "tandem.client.results",
    "SendTimeoutError": "tandem.client.errors",
    "SimpleConsumer": "tandem.client.simple_consumer",
    "Subscription": "tandem.client.subscription",
    "Transaction": "tandem.client.transaction",
    "TransactionState": "tandem.client.transaction_flow",
    "UserDescription": "tandem.client.user_admin",
    "UserExistsError": "tandem.client.errors",
    "UserNotFoundError": "tandem.client.errors",
}

__all__ = [
    "Ack",
    "Admin",
    "BlockingAdmin",
    "BlockingConsumer",
    "BlockingProducer",
    "BlockingPullConsumer",
    "BlockingSimpleConsumer",
    "BrokerError",
    "ClientError",
    "ClusterAccess",
    "CompressedBodyError",
    "ConnectionCause",
    "ConnectionLostError",
    "Consumer",
    "DuplicateFilter",
    "GroupNotFoundError",
    "MessageDamagedError",
    "MessageNotFoundError",
    "MessageQueue",
    "NotOpenError",
    "OffsetBeyondEndError",
    "OffsetsFileError",
    "PoppedMessage",
    "Producer",
    "PullConsumer",
    "PullResult",
    "PullStatus",
    "ReceivedMessage",
    "ReplyTimeoutError",
    "RequestTimeoutError",
    "RouteCause",
    "RouteNotFoundError",
    "SendInDoubtError",
    "SendResult",
    "SendStatus",
    "SendTimeoutError",
    "SimpleConsumer",
    "Subscription",
    "Transaction",
    "TransactionState",
    "UserDescription",
    "UserExistsError",
    "UserNotFoundError",
]


def __getattr__(name: str) -> object:
    """Load a public name on first use (PEP 562)."""
    if (module := f"{__name__}.{name}") in _HOMES.values():
        return importlib.import_module(module)
    if name not in _HOMES:
        raise AttributeError(f"module 'tandem.client' has no attribute {name!r}")
    value: object = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
