"""Where a batch or a stream begins and ends: options into offsets.

Source: Spark 4.3, KafkaOffsetReader: offsets by queue have to name every queue, and a time without
messages after it is an error unless `startingOffsetsByTimestampStrategy` says otherwise.
"""

from collections.abc import Iterable, Mapping
from typing import Protocol

from tandem.client.results import MessageQueue
from tandem.spark.commitlog.offsets import EARLIEST, LATEST
from tandem.spark.errors import LossCause, OptionError
from tandem.spark.live.data_loss import DataLoss, report_loss
from tandem.spark.live.offsets import Offsets, names
from tandem.spark.live.options import ANY_BROKER, WHOSE, Bound, LiveOptions


class OffsetQuestions(Protocol):
    """What is asked of a cluster. `Cluster` is one."""

    def min_offsets(self, queues: Iterable[MessageQueue]) -> Offsets:
        """The first offset of each queue."""

    def max_offsets(self, queues: Iterable[MessageQueue]) -> Offsets:
        """The end of each queue."""

    def offsets_at(self, queues: Iterable[MessageQueue], time_ms: int) -> Offsets:
        """The first offset stored at or after a time, or the end."""


class KnownCluster(OffsetQuestions, Protocol):
    """What the driver of a batch or a stream asks a cluster."""

    def queues(self, *, unknown_is_error: bool) -> dict[MessageQueue, str]:
        """Every queue that is subscribed to, and the cluster that it is in."""


def check_assigned(options: LiveOptions, queues: Iterable[MessageQueue]) -> None:
    """See that each queue that `assign` names is among `queues`.

    A wrong number would be no rows, which look like a true answer.

    Raises:
        OptionError: one is not.
    """
    found = {(each.topic, each.broker_name, each.queue_id) for each in queues}
    found |= {(topic, ANY_BROKER, queue_id) for topic, _, queue_id in found}
    for topic, brokers in (options.assigned or {}).items():
        missing = [
            f"{queue_id} at {broker}" if broker != ANY_BROKER else str(queue_id)
            for broker, queue_ids in brokers.items()
            for queue_id in queue_ids
            if (topic, broker, queue_id) not in found
        ]
        if missing:
            raise OptionError(
                f"{WHOSE}: assign names queues of topic {topic!r} that are not there:"
                f" {', '.join(missing)}",
                ["assign"],
            )


def starting_offsets(
    bound: Bound, queues: Iterable[MessageQueue], cluster: OffsetQuestions, options: LiveOptions
) -> Offsets:
    """Return where to begin in each queue.

    Raises:
        OptionError: offsets for other queues than there are; no message after a time.
    """
    queues = list(queues)
    if bound.kind == "time":
        found = cluster.offsets_at(queues, bound.time_ms)
        if options.strategy == "error":
            _check_times(found, cluster.max_offsets(queues), bound)
        return found
    starts = _resolved(bound, queues, cluster, "startingOffsets")
    if bound.kind == "offsets":
        _check_places(starts, cluster, "startingOffsets")
        _skip_deleted(starts, cluster, options)
    return starts


def ending_offsets(
    bound: Bound, queues: Iterable[MessageQueue], cluster: OffsetQuestions
) -> Offsets:
    """Return where to end in each queue. A time without messages after it is the end.

    Raises:
        OptionError: offsets for other queues than there are.
    """
    queues = list(queues)
    if bound.kind == "time":
        return cluster.offsets_at(queues, bound.time_ms)
    ends = _resolved(bound, queues, cluster, "endingOffsets")
    if bound.kind == "offsets":
        _check_places(ends, cluster, "endingOffsets")
    return ends


def _resolved(
    bound: Bound, queues: list[MessageQueue], cluster: OffsetQuestions, option: str
) -> Offsets:
    wanted: Mapping[MessageQueue, int] = bound.offsets
    match bound.kind:
        case "earliest":
            wanted = dict.fromkeys(queues, EARLIEST)
        case "latest":
            wanted = dict.fromkeys(queues, LATEST)
        case _:
            _check_names(wanted, queues, option)
    earliest = [queue for queue in queues if wanted[queue] == EARLIEST]
    latest = [queue for queue in queues if wanted[queue] == LATEST]
    found = dict(wanted)
    if earliest:
        found.update(cluster.min_offsets(earliest))
    if latest:
        found.update(cluster.max_offsets(latest))
    return found


def _check_places(offsets: Offsets, cluster: OffsetQuestions, option: str) -> None:
    ends = cluster.max_offsets(offsets)
    beyond = [
        f"{offset} of {names([queue])}, which ends at {ends[queue]}"
        for queue, offset in sorted(offsets.items())
        if offset > ends[queue]
    ]
    if beyond:
        raise OptionError(f"{WHOSE}: {option} names offset {'; '.join(beyond)}", [option])


def _skip_deleted(starts: Offsets, cluster: OffsetQuestions, options: LiveOptions) -> None:
    """Begin where a queue begins, if that is later than what was asked for.

    Raises:
        DataLossError: as the options say.
    """
    for queue, lowest in cluster.min_offsets(starts).items():
        if starts[queue] < lowest:
            reason = "startingOffsets is before the oldest message that is left"
            loss = DataLoss(queue, starts[queue], lowest, reason, LossCause.DELETED)
            report_loss(loss, fail=options.fail_on_data_loss)
            starts[queue] = lowest


def _check_names(
    wanted: Mapping[MessageQueue, int], queues: list[MessageQueue], option: str
) -> None:
    missing = [queue for queue in queues if queue not in wanted]
    unknown = [queue for queue in wanted if queue not in set(queues)]
    problems = []
    if missing:
        problems.append(
            f"{option} names no offset of {names(missing)}: give every queue one, -2 for its"
            " earliest message, -1 for its end"
        )
    if unknown:
        problems.append(f"{option} names {names(unknown)}, which are not subscribed to")
    if problems:
        raise OptionError(f"{WHOSE}: " + "; ".join(problems), [option])


def _check_times(found: Offsets, ends: Offsets, bound: Bound) -> None:
    without = [queue for queue, offset in found.items() if offset >= ends[queue]]
    if without:
        raise OptionError(
            f"{WHOSE}: no message at or after {bound.time_ms} ms in {names(without)};"
            " startingOffsetsByTimestampStrategy=latest begins at the end there",
            ["startingTimestamp"],
        )
