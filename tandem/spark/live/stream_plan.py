"""How far the next batch of a stream goes, and what it reads: the rules of a stream's driver.

It asks a cluster (`KnownCluster`) and knows neither Spark nor a clock of its own.

A queue that a stream does not know yet, of a new topic, a new broker or a topic with more queues
than before, is read from its earliest message on. One that it knows and that is not there any more
is lost (`failOnDataLoss`); before that is believed it is looked for as long as a switch may take.

Source: Spark 4.3, KafkaMicroBatchStream (latestOffset, planInputPartitions).
"""

import logging
from collections.abc import Callable
from typing import Final

from tandem.client.results import MessageQueue
from tandem.spark.errors import LossCause
from tandem.spark.live.bounds import KnownCluster, check_assigned, starting_offsets
from tandem.spark.live.data_loss import DataLoss, report_lost_queues
from tandem.spark.live.offsets import Offsets, StreamOffset, names
from tandem.spark.live.options import Bound, LiveOptions
from tandem.spark.live.ranges import Patience, QueueRange, admitted, backlog_of

QUEUES_FRESH_SECONDS: Final = 2.0
"""How long a stream goes on with the queues that it knows before it looks for new ones."""

IDLE_SECONDS: Final = 0.05
"""Between two looks at a cluster that has nothing new. Spark asks every 10 ms."""

MISSING_SECONDS: Final = 15.0
"""How long a queue may be missing from the routes, such as when all name servers start anew, or be
shorter than before, as at a master that does not know yet how far its log is confirmed."""

AGAIN_SECONDS: Final = 0.25
"""Between two looks for what is missing."""

_log = logging.getLogger(__name__)


class StreamPlan:
    """The driver of one stream. `clock` gives seconds, `sleep` waits some."""

    def __init__(
        self,
        options: LiveOptions,
        cluster: KnownCluster,
        *,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        self._options = options
        self._cluster = cluster
        self._clock = clock
        self._sleep = sleep
        self._patience = Patience(options.records_min or 0, options.delay_ms_max / 1000, clock)
        self._queues: dict[MessageQueue, str] = {}
        self._queues_at: float | None = None
        self._earliest: Offsets = {}
        self._idle_since: float | None = None
        self._ends: Offsets | None = None
        self._has_compared = False
        """Whether a fixed end was compared with what had been read before."""
        self._missing: frozenset[MessageQueue] = frozenset()
        """Queues that were shorter than before, or gone, at the last look."""
        self.latest: Offsets = {}
        """The ends of all queues when they were last asked for."""

    def initial(self) -> StreamOffset:
        """Return where a new stream begins."""
        starting = self._options.starting or Bound("latest")
        queues = self._cluster.queues(unknown_is_error=True)
        check_assigned(self._options, queues)
        return StreamOffset(
            starting_offsets(starting, queues, self._cluster, self._options), is_initial=True
        )

    def fix_end(self) -> None:
        """Let the stream end at what is there now."""
        self._ends = self._cluster.max_offsets(self._known_queues())
        self._has_compared = False

    def next_end(self, start: StreamOffset, records_max: int | None) -> StreamOffset:
        """Return where the next batch ends; `start` if there is none now.

        Raises:
            DataLossError: a queue is gone or shorter than what was read of it.
        """
        self._pause_if_idle()
        latest, has_lost = self._latest(start.places)
        begins = self._begins(start.places, latest)
        records = backlog_of(begins, latest)
        waits = self._ends is None and not self._patience.is_over(records)
        is_idle = not has_lost and (records == 0 or waits)
        self._idle_since = self._clock() if is_idle else None
        if is_idle:
            return start
        ends = latest if records_max is None else admitted(begins, latest, records_max)
        return StreamOffset(ends, start.places if start.is_initial else None)

    def ranges(self, start: StreamOffset, end: StreamOffset) -> list[QueueRange]:
        """Return what the batch between two places reads.

        The first batch begins where its end says that it began, whatever "latest" is by now.
        """
        starts = start.places
        if start.is_initial and end.started_at is not None:
            starts = end.started_at
        begins = self._begins(starts, end.places)
        clusters = self._known_queues()
        return [
            QueueRange(queue, begins[queue], places_end, clusters.get(queue, ""))
            for queue, places_end in sorted(end.places.items())
        ]

    # --- queues that come and go -----------------------------------------------------------------

    def _known_queues(self, *, anew: bool = False) -> dict[MessageQueue, str]:
        now = self._clock()
        at = self._queues_at
        if anew or at is None or now - at >= QUEUES_FRESH_SECONDS:
            self._queues = self._cluster.queues(unknown_is_error=False)
            self._queues_at = self._clock()
        return self._queues

    def _latest(self, starts: Offsets) -> tuple[Offsets, bool]:
        """Return the ends of all queues, and whether some of what is in `starts` is lost.

        Raises:
            DataLossError: as the options say.
        """
        if self._ends is None:
            latest, lost = self._look(starts)
            return latest, bool(lost)
        if not self._has_compared:
            # Messages lost before an end was fixed are lost all the same.
            latest, lost = self._look(starts)
            self._has_compared = True
            short = {queue for queue, start in starts.items() if self._ends.get(queue, -1) < start}
            for queue in short.union(lost):
                if queue in latest:
                    self._ends[queue] = latest[queue]
                else:
                    self._ends.pop(queue, None)
            if lost:
                return dict(self._ends), True
        ends = self._ends
        return {q: max(ends.get(q, 0), starts.get(q, 0)) for q in {**starts, **ends}}, False

    def _look(self, starts: Offsets) -> tuple[Offsets, list[MessageQueue]]:
        """Return the ends of all queues, and which of those in `starts` are gone or shorter.

        Raises:
            DataLossError: as the options say.
        """
        over_at = self._clock() + MISSING_SECONDS
        anew = False
        while True:
            latest = self._cluster.max_offsets(self._known_queues(anew=anew))
            self.latest = dict(latest)
            lost = [queue for queue, start in starts.items() if latest.get(queue, -1) < start]
            self._say_what_is_missing(lost)
            if not lost or self._clock() >= over_at:
                break
            self._sleep(AGAIN_SECONDS)
            anew = True
        if lost:
            losses = [_loss(queue, starts[queue], latest.get(queue)) for queue in sorted(lost)]
            report_lost_queues(losses, fail=self._options.fail_on_data_loss)
            self._missing = frozenset()
            for queue in lost:  # one that is made anew begins elsewhere
                self._earliest.pop(queue, None)
        return latest, lost

    def _say_what_is_missing(self, lost: list[MessageQueue]) -> None:
        """Log a change of it, and nothing while it stays the same."""
        missing = frozenset(lost)
        if missing and missing != self._missing:
            _log.warning(
                "queues are shorter than before, or gone; they are looked for again for %g s: %s",
                *(MISSING_SECONDS, names(missing)),
            )
        elif self._missing and not missing:
            _log.warning("queues are there again: %s", names(self._missing))
        self._missing = missing

    def _begins(self, starts: Offsets, ends: Offsets) -> Offsets:
        """Return where a batch begins in each of its queues; new ones at their earliest message.

        One that has become shorter counts as new: what was lost was said when it was noticed.
        """
        new = {queue for queue, end in ends.items() if end < starts.get(queue, end + 1)}
        if unasked := new - self._earliest.keys():
            self._earliest.update(self._cluster.min_offsets(unasked))
        return {
            queue: starts[queue] if queue not in new else min(self._earliest[queue], end)
            for queue, end in ends.items()
        }

    def _pause_if_idle(self) -> None:
        if self._idle_since is not None:
            self._sleep(max(0.0, self._idle_since + IDLE_SECONDS - self._clock()))


def _loss(queue: MessageQueue, start: int, end: int | None) -> DataLoss:
    reason = "the queue is gone" if end is None else f"the queue ends at {end} now"
    cause = LossCause.GONE if end is None else LossCause.CUT
    return DataLoss(queue, end or 0, start, reason, cause)
