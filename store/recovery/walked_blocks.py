"""WalkedBlocks: what recovery walks is compared with its fingerprints before it is believed.

A CRC of RocketMQ covers the body of a record only. A queue id, a queue number or a topic that has
changed makes another sound record, and a queue that is built from it gives its messages wrong
numbers. So of a block that is not what its fingerprint says nothing is entered: its records have to
be in their queues already.

    piece of the walk --> its blocks fit --------------------------------------> entered
                     `--> one does not: noted --> all of its records are known --> goes on, damaged
                                             `--> one is not --> the log is damaged: no start

Only what was surely on disk can be told from what was torn: blocks below the checkpoint's offset,
in a file that nobody else had since (see `fingerprints.py`). Where all blocks fit, the CRCs of the
records in them are not looked at: each byte is looked at once, as without fingerprints.
"""

from __future__ import annotations

import numpy as np

from store.files.mapped_file import MappedFile
from store.log.commit_log import CommitLog
from store.log.fingerprints import Fingerprints
from store.queue.consume_queue_store import ConsumeQueueStore, is_queued
from store.queue.record_check import BLOCK_REASON
from tandem.wire.fingerprint import BLOCK_BYTES, Fingerprint
from tandem.wire.record_scan import RecordColumns


class WalkedBlocks:
    """The blocks of one walk, from a place of the log on.

    `bad` has from where to where each is that differs, in order; they are noted as damage.
    """

    def __init__(
        self,
        log: CommitLog,
        queues: ConsumeQueueStore,
        fingerprints: Fingerprints | None,
        synced_end: int,
    ) -> None:
        self.bad: list[tuple[int, int]] = []
        self._log = log
        self._queues = queues
        self._fingerprints = fingerprints
        self._synced_end = synced_end
        self._looked_to = 0

    def look(self, start: int, end: int) -> None:
        """Look at all blocks with a byte from `start` up to `end` that are not looked at yet."""
        at = max(start, self._looked_to)
        while at < end:
            file = self._log.files.find_by_offset(at)
            if file is None:
                return
            stop = min(end, file.file_from_offset + file.size)
            known = self._known(file)
            if known is not None:
                first = at - (at - known.start) % BLOCK_BYTES
                stop = min(known.end, stop + (known.start - stop) % BLOCK_BYTES)
                with memoryview(file.buffer)[first - known.start : stop - known.start] as view:
                    differing = known.differing(first, view)
                for block in differing:
                    if block[1] <= self._synced_end:
                        self.bad.append(block)
                        self._log.damage.note(*block, BLOCK_REASON)
            self._looked_to = at = stop

    def are_known(self, start: int, end: int) -> bool:
        """True if all bytes of this part of a file are what they have to be."""
        file = self._log.files.find_by_offset(start)
        # The block that `end` is in has to be comparable as a whole.
        if file is None or end + BLOCK_BYTES > self._synced_end or self._known(file) is None:
            return False
        self.look(start, end)
        return not self.bad or self.bad[-1][1] <= start

    def stranger(self, buffer: bytes | memoryview, columns: RecordColumns) -> int:
        """Return where the first of these records is that must not be entered; -1 for none.

        That is one in a bad block that is not in its queue, under its number, already.
        """
        begin = int(columns.physical_offset[0])
        end = int(columns.physical_offset[-1] + columns.size[-1])
        self.look(begin, end)
        for bad_start, bad_end in reversed(self.bad):
            if bad_end <= begin:
                break
            ends = columns.physical_offset + columns.size
            rows = np.flatnonzero((columns.physical_offset < bad_end) & (ends > bad_start))
            for row in rows.tolist():
                if not self._is_known(buffer, columns, row):
                    return int(columns.physical_offset[row])
        return -1

    def widened(self, start: int, end: int) -> tuple[int, int]:
        """Return a bad range with all of the bad blocks that it has a part of.

        They can be healed as a whole only.
        """
        self.look(start, end)
        for bad_start, bad_end in self.bad:
            if bad_start < end and start < bad_end:
                start, end = min(start, bad_start), max(end, bad_end)
        return start, end

    def _known(self, file: MappedFile) -> Fingerprint | None:
        if self._fingerprints is None or file.file_from_offset >= self._synced_end:
            return None
        known = self._fingerprints.of(file.file_from_offset)
        if known is None or known.era != self._fingerprints.era or known.size != file.size:
            return None
        return known

    def _is_known(self, buffer: bytes | memoryview, columns: RecordColumns, row: int) -> bool:
        start, size = int(columns.topic_start[row]), int(columns.topic_size[row])
        topic = bytes(buffer[start : start + size]).decode("utf-8", "replace")
        queue = self._queues.find(topic, int(columns.queue_id[row]))
        number = int(columns.queue_offset[row])
        place = int(columns.physical_offset[row]), int(columns.size[row])
        return (
            queue is not None
            and is_queued(int(columns.sys_flag[row]))
            and queue.min_offset <= number < queue.next_offset
            and queue.unit(number)[:2] == place
        )
