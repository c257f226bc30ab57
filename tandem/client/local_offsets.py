"""Offsets that a broadcasting consumer keeps itself: in memory, or in a file.

The file is JSON: a list of records with topic, brokerName, queueId and offset, and a last line with
its checksum. It is replaced as a whole, so it is never half written, and it is on the disk when
`save` returns.

Source: RocketMQ 5.3.3, LocalFileOffsetStore, whose file has another form.
"""

from pathlib import Path
from typing import Final

import msgspec

from tandem.client.errors import OffsetsFileError
from tandem.client.results import MessageQueue
from tandem.durable_file import write_durably
from tandem.wire.checksum_line import decode_checked_json, with_checksum
from tandem.wire.untrusted import UnreadableError

_CHECKED_AS: Final = "offsets"
"""What the checksum takes for the name: a user may give the file another one."""


class _Stored(msgspec.Struct, frozen=True, rename="camel"):
    topic: str
    broker_name: str
    queue_id: int
    offset: int


class LocalOffsets:
    """Offsets by queue. Without a file they are gone with the consumer.

    Raises:
        OffsetsFileError: the file cannot be read, or holds something else.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._offsets: dict[MessageQueue, int] = {}
        self._is_saved = True
        if path is None or not path.exists():
            return
        try:
            stored = decode_checked_json(_CHECKED_AS, path.read_bytes(), list[_Stored])
        except (OSError, UnreadableError) as error:
            text = f"{error}. It is a file of offsets; remove it to begin anew"
            raise OffsetsFileError(path, text) from error
        for each in stored:
            queue = MessageQueue(each.topic, each.broker_name, each.queue_id)
            self._offsets[queue] = each.offset

    def find(self, queue: MessageQueue) -> int | None:
        """Return the offset of the next message to handle, None if it was never set."""
        return self._offsets.get(queue)

    def set(self, queue: MessageQueue, offset: int) -> None:
        """Set it, here; `save` writes it."""
        if self._offsets.get(queue) != offset:
            self._offsets[queue] = offset
            self._is_saved = False

    def save(self) -> None:
        """Write the file, if there is one and something has changed. Blocks for the disk.

        May be called in a thread, one at a time, while offsets are set.

        Raises:
            OffsetsFileError: it cannot be written.
        """
        if self._path is None or self._is_saved:
            return
        # Before the look at the offsets: what is set from here on is for the next time.
        self._is_saved = True
        stored = [
            _Stored(queue.topic, queue.broker_name, queue.queue_id, offset)
            for queue, offset in sorted(self._offsets.copy().items())
        ]
        data = with_checksum(_CHECKED_AS, msgspec.json.format(msgspec.json.encode(stored)))
        try:
            self._path.parent.stat()  # a directory that is not there is a wrong path: not made
            write_durably(self._path, data)
        except OSError as error:
            self._is_saved = False
            text = f"offsets cannot be stored: {error}"
            raise OffsetsFileError(self._path, text) from error
