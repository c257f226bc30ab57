"""The log on disk. Knows nothing of networks.

Start reading at `message_store.py`; `log/commit_log.py` and `recovery/` are the heart.
"""

from store.config import StoreConfig
from store.machine.errors import (
    AppendGapError,
    CorruptLogError,
    DiskFailedError,
    StoreClosedError,
    StoreError,
    StoreFullError,
    StoreLockedError,
)
from store.message_store import MessageStore
from store.results import (
    GetMessageResult,
    GetMessageStatus,
    PutBatch,
    PutMessage,
    PutMessageResult,
    PutMessageStatus,
)
from tandem.cluster_file.choices import FlushDiskType

__all__ = [
    "AppendGapError",
    "CorruptLogError",
    "DiskFailedError",
    "FlushDiskType",
    "GetMessageResult",
    "GetMessageStatus",
    "MessageStore",
    "PutBatch",
    "PutMessage",
    "PutMessageResult",
    "PutMessageStatus",
    "StoreClosedError",
    "StoreConfig",
    "StoreError",
    "StoreFullError",
    "StoreLockedError",
]
