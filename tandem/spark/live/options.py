"""The options of the source `tandem`, checked once on the driver.

Where Spark's Kafka source has an option, this one has the same, with the same meaning. Those that
are about streams alone are refused in a batch and the other way round: nobody should believe that
one of them does something.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Final, Literal, cast

import msgspec

from tandem.client.cluster_access import ClusterAccess
from tandem.spark.bodies.columns import types_of
from tandem.spark.bodies.schemas import chosen_by, read_bodies
from tandem.spark.cluster_options import CLUSTER_OPTIONS, read_access
from tandem.spark.commitlog.offsets import EARLIEST, LATEST
from tandem.spark.errors import OptionError
from tandem.spark.live.columns import TYPES, every_column
from tandem.spark.live.offsets import Offsets, offsets_of_option
from tandem.spark.option_reader import OptionReader
from tandem.spark.row_filter import RowFilter, check_times, read_queues, read_tags
from tandem.wire.untrusted import UnreadableError, decode_json

WHOSE: Final = "source tandem"

GROUP_DEFAULT: Final = "tandem-spark"
"""The consumer group that brokers see. Its offsets are not touched unless `groupId` is given."""

RETRY_MS_DEFAULT: Final = 60_000
TRIGGER_DELAY_MS_DEFAULT: Final = 15 * 60 * 1000
"""As in Kafka's source."""

ReadFrom = Literal["master", "slave"]
Seam = Literal["brokers", "files"]
Strategy = Literal["error", "latest"]

OPTIONS: Final = (
    *CLUSTER_OPTIONS,
    "subscribe",
    "topic",
    "subscribePattern",
    "assign",
    "queues",
    "tags",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingTimestamp",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "failOnDataLoss",
    "groupId",
    "columns",
    "bodySchema",
    "includeProperties",
    "includeSystemTopics",
    "decompress",
    "checkCrc",
    "readFrom",
    "backfill",
    "backfillSeam",
    "retryTimeoutMs",
)

_OF_STREAMS: Final = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "groupId")
_OF_BATCHES: Final = ("endingOffsets",)

_QueueIds = list[Annotated[int, msgspec.Meta(ge=0, lt=2**31)]]
_ASSIGN: Final = dict[str, _QueueIds | dict[str, _QueueIds]]

_DELAY: Final = re.compile(r"(\d+)\s*(ms|s|m|min|h|seconds?|minutes?|hours?)?", re.IGNORECASE)
_DELAY_MS: Final = {"": 1, "ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}

ANY_BROKER: Final = ""


class Bound(msgspec.Struct, frozen=True):
    """Where to begin or to end: a word, an offset for each queue, or a store time in ms."""

    kind: Literal["earliest", "latest", "offsets", "time"]
    offsets: Offsets = {}
    time_ms: int = 0


class LiveOptions(msgspec.Struct, frozen=True):
    """What to read, from where, and how. None means that the option is not given.

    `assigned` has the queue ids by topic and broker name, `ANY_BROKER` for those of every broker;
    `backfill` likewise the paths of stores.
    """

    access: ClusterAccess
    topics: frozenset[str] | None = None
    pattern: str | None = None
    assigned: dict[str, dict[str, list[int]]] | None = None
    starting: Bound | None = None
    ending: Bound | None = None
    strategy: Strategy = "error"
    records_max: int | None = None
    records_min: int | None = None
    delay_ms_max: int = TRIGGER_DELAY_MS_DEFAULT
    min_partitions: int | None = None
    partition_records_max: int | None = None
    fail_on_data_loss: bool = True
    group: str | None = None
    columns: tuple[str, ...] = tuple(TYPES)
    with_system_topics: bool = False
    decompress: bool = True
    check_crc: bool = True
    read_from: ReadFrom = "master"
    backfill: dict[str, str] | None = None
    backfill_seam: Seam = "brokers"
    retry_ms: int = RETRY_MS_DEFAULT
    given: frozenset[str] = frozenset()
    queues: frozenset[int] | None = None
    tags: frozenset[str] | None = None
    body_schema: str | None = None

    @property
    def rows(self) -> RowFilter:
        """Which messages of the offsets that are read become rows."""
        return RowFilter(self.tags, _time_of(self.starting), _time_of(self.ending))


def parse_options(raw: Mapping[str, str]) -> LiveOptions:
    """Return the checked options; Spark hands them over with lower-case names.

    Raises:
        OptionError: with every problem there is, not just the first.
    """
    given = OptionReader(WHOSE, OPTIONS, raw)
    topics, pattern, assigned = _subscription(given)
    body_schema = read_bodies(given, chosen_by(topics if assigned is None else assigned, pattern))
    starting, ending = _bound(given, "starting"), _bound(given, "ending")
    if ending == Bound("earliest"):
        given.refuse("endingOffsets=earliest would read nothing: latest, or JSON", "endingOffsets")
    options = LiveOptions(
        access=read_access(given),
        topics=topics,
        pattern=pattern,
        assigned=assigned,
        starting=starting,
        ending=ending,
        strategy=cast(
            "Strategy", given.choice("startingOffsetsByTimestampStrategy", ("error", "latest"))
        ),
        records_max=given.integer("maxOffsetsPerTrigger", at_least=1),
        records_min=given.integer("minOffsetsPerTrigger", at_least=1),
        delay_ms_max=_delay_ms(given),
        min_partitions=given.integer("minPartitions", at_least=1),
        partition_records_max=given.integer("maxRecordsPerPartition", at_least=1),
        fail_on_data_loss=given.flag("failOnDataLoss", default=True),
        group=given.text("groupId"),
        columns=_columns(given, body_schema),
        with_system_topics=given.flag("includeSystemTopics", default=False),
        decompress=given.flag("decompress", default=True),
        check_crc=given.flag("checkCrc", default=True),
        read_from=cast("ReadFrom", given.choice("readFrom", ("master", "slave"))),
        backfill=_backfill(given),
        backfill_seam=cast("Seam", given.choice("backfillSeam", ("brokers", "files"))),
        retry_ms=given.integer("retryTimeoutMs", at_least=1) or RETRY_MS_DEFAULT,
        given=frozenset(given.given),
        queues=read_queues(given),
        tags=read_tags(given),
        body_schema=body_schema,
    )
    _check_together(given, options)
    given.finish()
    return options


def check_batch(options: LiveOptions) -> None:
    """Check what only counts for a batch.

    Raises:
        OptionError: an option is about streams, or there is nothing to read by them.
    """
    problems: dict[str, str] = {
        name: f"{name} is about streams: leave it out of a batch, whose size is that of its offsets"
        for name in _OF_STREAMS
        if name in options.given
    }
    if options.starting == Bound("latest"):
        problems["startingOffsets"] = "startingOffsets=latest would read nothing in a batch"
    _finish(problems)


def check_stream(options: LiveOptions) -> None:
    """Check what only counts for a stream.

    Raises:
        OptionError: an option is about batches.
    """
    _finish(
        {
            name: f"{name} is about batches: a stream goes on; availableNow ends one at what is"
            " there"
            for name in _OF_BATCHES
            if name in options.given
        }
    )


def check_schema(fields: Sequence[tuple[str, object]], body_schema: str | None = None) -> None:
    """Check the names and types of a schema that the user gave.

    Raises:
        OptionError: it has a column that we do not have, or one of another type.
    """
    every = every_column(types_of(body_schema))
    _finish(
        {
            name: f"column {name} of the schema given is not one of {every.simpleString()}"
            for name, kind in fields
            if name not in every.names or every[name].dataType != kind
        }
    )


def _finish(problems: Mapping[str, str]) -> None:
    if problems:
        raise OptionError(f"{WHOSE}: " + "; ".join(problems.values()), list(problems))


def _time_of(bound: Bound | None) -> int | None:
    return bound.time_ms if bound is not None and bound.kind == "time" else None


def _check_together(given: OptionReader, options: LiveOptions) -> None:
    check_times(given, options.rows.start_ms, options.rows.end_ms)
    if "queues" in given and "assign" in given:
        given.refuse(
            "queues and assign both choose queues: give one, or name them in assign",
            "queues",
            "assign",
        )
    most, least = options.records_max, options.records_min
    if most is not None and least is not None and least > most:
        given.refuse(
            f"minOffsetsPerTrigger {least} is more than maxOffsetsPerTrigger {most}",
            "minOffsetsPerTrigger",
            "maxOffsetsPerTrigger",
        )
    if "maxTriggerDelay" in given and "minOffsetsPerTrigger" not in given:
        given.refuse(
            "maxTriggerDelay does nothing without minOffsetsPerTrigger",
            "maxTriggerDelay",
            "minOffsetsPerTrigger",
        )
    if options.backfill is not None and "startingTimestamp" in given:
        given.refuse(
            "startingTimestamp knows what brokers have, and not the files of backfill: begin at"
            " startingOffsets, and select by storeTimestamp",
            "startingTimestamp",
            "backfill",
        )
    if options.group == "":
        given.refuse("groupId is empty", "groupId")


def _subscription(
    given: OptionReader,
) -> tuple[frozenset[str] | None, str | None, dict[str, dict[str, list[int]]] | None]:
    named = [name for name in ("subscribe", "topic", "subscribePattern", "assign") if name in given]
    if not named:
        given.refuse("no topic: give subscribe, subscribePattern or assign", "subscribe")
    if len(named) > 1:
        given.refuse(f"{' and '.join(named)} exclude each other: give one", *named)
    topics = given.names("subscribe") or given.names("topic")
    return None if topics is None else frozenset(topics), _pattern(given), _assigned(given)


def _pattern(given: OptionReader) -> str | None:
    pattern = given.text("subscribePattern")
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as error:
            given.refuse(f"subscribePattern {pattern!r}: {error}", "subscribePattern")
            return None
    return pattern


def _assigned(given: OptionReader) -> dict[str, dict[str, list[int]]] | None:
    text = given.text("assign")
    if text is None:
        return None
    try:
        topics = decode_json(text, _ASSIGN)
    except UnreadableError as error:
        given.refuse(
            f'assign is not {{"topic": [0, 1]}} or {{"topic": {{"broker": [0, 1]}}}} ({error})',
            "assign",
        )
        return None
    return {
        topic: {ANY_BROKER: queues} if isinstance(queues, list) else queues
        for topic, queues in topics.items()
    }


def _backfill(given: OptionReader) -> dict[str, str] | None:
    text = given.text("backfill")
    if text is None:
        if "backfillSeam" in given:
            given.refuse("backfillSeam does nothing without backfill", "backfillSeam", "backfill")
        return None
    if not text.strip().startswith("{"):
        return {ANY_BROKER: text}
    try:
        return decode_json(text, dict[str, str])
    except UnreadableError as error:
        given.refuse(f'backfill is neither a path nor {{"broker": "path"}} ({error})', "backfill")
        return None


def _bound(given: OptionReader, which: Literal["starting", "ending"]) -> Bound | None:
    by_offset, by_time = f"{which}Offsets", f"{which}Timestamp"
    if by_offset in given and by_time in given:
        given.refuse(f"{by_offset} and {by_time} exclude each other: give one", by_offset, by_time)
    if by_time in given:
        time_ms = given.time_ms(by_time)
        return None if time_ms is None else Bound("time", time_ms=time_ms)
    text = (given.text(by_offset) or "").strip()
    match text.lower():
        case "":
            return None
        case "earliest":
            return Bound("earliest")
        case "latest":
            return Bound("latest")
    try:
        offsets = offsets_of_option(text)
    except UnreadableError as error:
        given.refuse(
            f'{by_offset} is neither earliest nor latest nor {{"topic": {{"broker": {{"0": 23}}}}}}'
            f" ({error})",
            by_offset,
        )
        return None
    unwanted, word = (LATEST, "latest") if which == "starting" else (EARLIEST, "earliest")
    if which == "ending" and unwanted in offsets.values():
        given.refuse(f"{by_offset}: {unwanted} ({word}) is no place to end at", by_offset)
    return Bound("offsets", offsets)


def _delay_ms(given: OptionReader) -> int:
    text = given.text("maxTriggerDelay")
    if text is None:
        return TRIGGER_DELAY_MS_DEFAULT
    match = _DELAY.fullmatch(text.strip())
    if match is None or len(match[1]) > len(str(2**31)):
        given.refuse(
            f"maxTriggerDelay={text!r}: expected a time such as 30s, 15m or 1h", "maxTriggerDelay"
        )
        return TRIGGER_DELAY_MS_DEFAULT
    unit = (match[2] or "").lower()
    return int(match[1]) * _DELAY_MS[unit if unit == "ms" else unit[:1]]


def _columns(given: OptionReader, body_schema: str | None) -> tuple[str, ...]:
    every = (*TYPES, *types_of(body_schema))
    with_properties = given.flag("includeProperties", default=True)
    columns = given.names("columns")
    if columns is None:
        return tuple(name for name in every if with_properties or name != "properties")
    twice = sorted({name for name in columns if columns.count(name) > 1})
    if twice:
        given.refuse(f"columns names {', '.join(twice)} more than once: name each once", "columns")
    unknown = [name for name in columns if name not in every]
    if unknown:
        given.refuse(f"no column {', '.join(unknown)}; there are {', '.join(every)}", "columns")
    if "includeProperties" in given:
        given.refuse(
            "columns and includeProperties exclude each other: give one",
            "columns",
            "includeProperties",
        )
    return tuple(columns)
