"""The client: producers, pull consumers and administration, for trio and for plain code."""

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
