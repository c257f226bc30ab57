"""How a consumer of a group reads; see `Consumer`."""

from typing import Final, Literal

import msgspec

from tandem.client.pull_flow import Start
from tandem.wire.errors import ArgumentError
from tandem.wire.system_topics import dlq_topic

MessageModel = Literal["clustering", "broadcasting"]

GroupStart = Literal["earliest", "latest"] | int

PULL_BATCH_SIZE: Final = 32
"""RocketMQ's pullBatchSize."""

PULL_THRESHOLD_FOR_QUEUE: Final = 1000
"""RocketMQ's."""

PULL_THRESHOLD_BYTES_FOR_QUEUE: Final = 100 * 1024 * 1024
"""RocketMQ's pullThresholdSizeForQueue."""

COMMIT_INTERVAL_MS: Final = 5000
"""RocketMQ's persistConsumerOffsetInterval."""

SUSPEND_TIMEOUT_MS: Final = 15_000
"""How long a broker may hold a pull that finds nothing (RocketMQ's brokerSuspendMaxTimeMillis)."""


class ConsumerSettings(msgspec.Struct, frozen=True):
    """See `Consumer` for what they mean.

    Raises:
        ArgumentError: one of them is out of range.
    """

    group: str
    message_model: MessageModel = "clustering"
    orderly: bool = False
    start: GroupStart = "earliest"
    max_reconsume_times: int | None = None
    pull_batch_size: int = PULL_BATCH_SIZE
    pull_threshold_for_queue: int = PULL_THRESHOLD_FOR_QUEUE
    pull_threshold_bytes_for_queue: int = PULL_THRESHOLD_BYTES_FOR_QUEUE
    commit_interval_ms: int = COMMIT_INTERVAL_MS

    def __post_init__(self) -> None:
        if self.message_model not in ("clustering", "broadcasting"):
            raise ArgumentError(
                f'message_model is {self.message_model!r}; it is "clustering" (the members share'
                ' the queues) or "broadcasting" (each reads all of them)',
                "message_model",
            )
        if isinstance(self.start, str) and self.start not in ("earliest", "latest"):
            raise ArgumentError(
                f'start is {self.start!r}; it is "earliest", "latest", or a time in ms since 1970',
                "start",
            )
        for name, lowest in (
            ("pull_batch_size", 1),
            ("pull_threshold_for_queue", 1),
            ("pull_threshold_bytes_for_queue", 1),
            ("commit_interval_ms", 1),
        ):
            if getattr(self, name) < lowest:
                text = f"{name} is {getattr(self, name)}; it is {lowest} or more"
                raise ArgumentError(text, name)

    def fate_of_failed(self, reconsume_times: int) -> str:
        """Return in words what becomes of a message that came back this often and failed again."""
        most = self.max_reconsume_times
        if self.is_broadcasting or (most is None and self.orderly):
            return "comes again"
        if most is None:
            return "comes again, as often as its group's settings say"
        if reconsume_times >= most:
            return f"does not come again: it is a dead letter, in {dlq_topic(self.group)}"
        return f"comes again, {most - reconsume_times} more times at most"

    @property
    def is_broadcasting(self) -> bool:
        """Whether each member reads all queues and keeps its offsets itself."""
        return self.message_model == "broadcasting"

    @property
    def first_offset(self) -> Start | int:
        """Where the group begins in a queue that it never read."""
        return self.start if isinstance(self.start, int) else Start(self.start)

    @property
    def consume_from_where(self) -> str:
        """The same in RocketMQ's words."""
        if isinstance(self.start, int):
            return "CONSUME_FROM_TIMESTAMP"
        if self.start == "latest":
            return "CONSUME_FROM_LAST_OFFSET"
        return "CONSUME_FROM_FIRST_OFFSET"
