"""TandemMQ: a replicated message log, byte compatible with RocketMQ 5.3.3, and its client.

    import tandem

    async with tandem.Producer(name_servers, group="orders") as producer:
        result = await producer.send(tandem.Message("orders", b"hello"))

The names below are loaded when first used, so that importing one codec imports no client.
"""

import importlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tandem.client import (
        Ack,
        Admin,
        BlockingAdmin,
        BlockingConsumer,
        BlockingProducer,
        BlockingPullConsumer,
        BlockingSimpleConsumer,
        BrokerError,
        ClientError,
        ClusterAccess,
        CompressedBodyError,
        ConnectionCause,
        ConnectionLostError,
        Consumer,
        DuplicateFilter,
        GroupNotFoundError,
        MessageDamagedError,
        MessageNotFoundError,
        MessageQueue,
        NotOpenError,
        OffsetBeyondEndError,
        OffsetsFileError,
        PoppedMessage,
        Producer,
        PullConsumer,
        PullResult,
        PullStatus,
        ReceivedMessage,
        ReplyTimeoutError,
        RequestTimeoutError,
        RouteCause,
        RouteNotFoundError,
        SendInDoubtError,
        SendResult,
        SendStatus,
        SendTimeoutError,
        SimpleConsumer,
        Subscription,
        Transaction,
        TransactionState,
        UserDescription,
        UserExistsError,
        UserNotFoundError,
    )
    from tandem.tls_files import TLSFileError, TLSFileFault, TLSFiles
    from tandem.wire.compression import CompressionFault
    from tandem.wire.errors import ArgumentError
    from tandem.wire.message import Message, MessageExt
    from tandem.wire.user_quota import UserQuota

__version__ = "0.1.0"

_HOMES: Final = {
    "ArgumentError": "tandem.wire.errors",
    "CompressionFault": "tandem.wire.compression",
    "Message": "tandem.wire.message",
    "MessageExt": "tandem.wire.message",
    "TLSFileError": "tandem.tls_files",
    "TLSFileFault": "tandem.tls_files",
    "TLSFiles": "tandem.tls_files",
    "UserQuota": "tandem.wire.user_quota",
}
"""Where the names live that `tandem.client` does not offer."""

__all__ = [
    "Ack",
    "Admin",
    "ArgumentError",
    "BlockingAdmin",
    "BlockingConsumer",
    "BlockingProducer",
    "BlockingPullConsumer",
    "BlockingSimpleConsumer",
    "BrokerError",
    "ClientError",
    "ClusterAccess",
    "CompressedBodyError",
    "CompressionFault",
    "ConnectionCause",
    "ConnectionLostError",
    "Consumer",
    "DuplicateFilter",
    "GroupNotFoundError",
    "Message",
    "MessageDamagedError",
    "MessageExt",
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
    "TLSFileError",
    "TLSFileFault",
    "TLSFiles",
    "Transaction",
    "TransactionState",
    "UserDescription",
    "UserExistsError",
    "UserNotFoundError",
    "UserQuota",
    "__version__",
]


def __getattr__(name: str) -> object:
    """Load a public name on first use (PEP 562)."""
    if name not in __all__:
        raise AttributeError(f"module 'tandem' has no attribute {name!r}")
    value: object = getattr(importlib.import_module(_HOMES.get(name, "tandem.client")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
