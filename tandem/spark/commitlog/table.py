"""Plans one `load()`: the stores, the offsets asked for, the topics, and the splits of it all."""

from tandem.spark.commitlog import data_loss
from tandem.spark.commitlog.offsets import EARLIEST, LATEST, check_names, position_in
from tandem.spark.commitlog.options import ScanOptions
from tandem.spark.commitlog.parts import Part
from tandem.spark.commitlog.plan import StoreLog, open_logs
from tandem.spark.commitlog.queue_plan import plan_store
from tandem.spark.commitlog.split import LostRange
from tandem.spark.commitlog.topics import check_topics


def plan_table(options: ScanOptions) -> list[Part]:
    """Look at the stores and cut what is asked for into splits.

    Raises:
        NotAStoreError: a path is something else.
        OptionError: offsets are given for other stores than those loaded.
        UnknownTopicError: no store knows a topic, and `ignoreMissingTopics` is false.
        DataLossError: not all of it is there, and `failOnDataLoss` is true.
    """
    return data_loss.looking_again(lambda: _plan(options))


def _plan(options: ScanOptions) -> list[Part]:
    logs = open_logs(options)
    names = [log.place.name for log in logs]
    check_names(options.starting, names, "startingOffsets")
    check_names(options.ending, names, "endingOffsets")
    if not options.ignore_missing_topics:
        check_topics(options.topics, [log.place for log in logs])
    return [part for log in logs for part in _parts(log, options)]


def _parts(log: StoreLog, options: ScanOptions) -> list[Part]:
    first, start_loss = _start(log, options)
    last, end_loss = _end(log, options)
    lost = [loss for loss in (start_loss, end_loss) if loss is not None]
    for loss in lost:
        data_loss.report(loss, options)
    return [*lost, *plan_store(log, options, first, last)]


def _start(log: StoreLog, options: ScanOptions) -> tuple[int | None, LostRange | None]:
    if options.starting is None:
        return None, None
    offset = position_in(options.starting, log.place.name, "startingOffsets").offset
    if offset == EARLIEST:
        return None, None
    if offset == LATEST:
        return log.sound_end, None
    if offset < log.start:
        return log.start, data_loss.deleted(log.place.name, offset, log.start)
    if offset > log.sound_end:
        return log.sound_end, _beyond(log, offset)
    return log.boundary_at(offset), None


def _end(log: StoreLog, options: ScanOptions) -> tuple[int | None, LostRange | None]:
    if options.ending is None:
        return None, None
    offset = position_in(options.ending, log.place.name, "endingOffsets").offset
    if offset == LATEST:
        return None, None
    if offset > log.sound_end:
        return None, _beyond(log, offset)
    return (log.start if offset <= log.start else log.boundary_at(offset)), None


def _beyond(log: StoreLog, offset: int) -> LostRange:
    return data_loss.beyond(log.place.name, offset, log.sound_end, is_bounded=log.is_bounded)
