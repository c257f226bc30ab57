"""The options of the sink `tandem`, checked once on the driver."""

from collections.abc import Mapping
from typing import Final, cast

import msgspec

from tandem.client.accumulator import BATCH_MAX_BYTES
from tandem.client.ack import Ack
from tandem.client.cluster_access import ClusterAccess
from tandem.client.sending import MESSAGE_BYTES_MAX
from tandem.spark.cluster_options import CLUSTER_OPTIONS, read_access
from tandem.spark.option_reader import OptionReader
from tandem.wire.compression import Codec, checked_codec

WHOSE: Final = "sink tandem"

OPTIONS: Final = (
    *CLUSTER_OPTIONS,
    "topic",
    "ack",
    "writeId",
    "skipCommittedBatches",
    "sendMsgTimeoutMs",
    "attemptTimeoutMs",
    "compressOverBytes",
    "compression",
    "batchMaxBytes",
    "maxInFlightBytes",
    "maxMessageSizeBytes",
    "producerGroup",
)

OF_SPARK: Final = frozenset({"checkpointlocation", "queryname"})
"""What a streaming query hands to its sink, too."""

GROUP_DEFAULT: Final = "tandem-spark"
SEND_MS_DEFAULT: Final = 60_000
"""A change of the master takes up to 8 s; a master that is started again by hand, longer."""

ATTEMPT_MS_DEFAULT: Final = 4_000
IN_FLIGHT_DEFAULT: Final = 8 * 1024 * 1024


class SinkOptions(msgspec.Struct, frozen=True):
    """How rows are sent. An empty `topic` is that of each row; an empty `write_id` is Spark's."""

    access: ClusterAccess
    topic: str = ""
    ack: Ack = Ack.REPLICATED
    write_id: str = ""
    send_ms: int = SEND_MS_DEFAULT
    attempt_ms: int = ATTEMPT_MS_DEFAULT
    compress_over_bytes: int | None = None
    compression: Codec = "zlib"
    batch_max_bytes: int = BATCH_MAX_BYTES
    in_flight_max_bytes: int = IN_FLIGHT_DEFAULT
    message_max_bytes: int = MESSAGE_BYTES_MAX
    group: str = GROUP_DEFAULT
    skip_committed: bool = False


def option_reader(raw: Mapping[str, str]) -> OptionReader:
    """Return a reader of what was given to the sink."""
    ours = {name: value for name, value in raw.items() if name.lower() not in OF_SPARK}
    return OptionReader(WHOSE, OPTIONS, ours)


def read_options(given: OptionReader) -> SinkOptions:
    """Return the options. Errors are noted in `given`."""
    ack_words = (Ack.REPLICATED.value, Ack.ASYNC.value, Ack.REPLICATED_FLUSHED.value)
    send_ms = _integer(given, "sendMsgTimeoutMs", SEND_MS_DEFAULT)
    return SinkOptions(
        access=read_access(given),
        topic=_text(given, "topic"),
        ack=Ack(given.choice("ack", ack_words)),
        write_id=_text(given, "writeId"),
        send_ms=send_ms,
        attempt_ms=_integer(given, "attemptTimeoutMs", min(ATTEMPT_MS_DEFAULT, send_ms)),
        compress_over_bytes=given.integer("compressOverBytes", at_least=0),
        compression=_codec(given),
        batch_max_bytes=_integer(given, "batchMaxBytes", BATCH_MAX_BYTES),
        in_flight_max_bytes=_integer(given, "maxInFlightBytes", IN_FLIGHT_DEFAULT),
        message_max_bytes=_integer(given, "maxMessageSizeBytes", MESSAGE_BYTES_MAX),
        group=_text(given, "producerGroup") or GROUP_DEFAULT,
        skip_committed=_skip_committed(given),
    )


def _text(given: OptionReader, name: str) -> str:
    text = (given.text(name) or "").strip()
    if name in given and not text:
        given.refuse(f"{name} is empty: leave it out or give it a value", name)
    return text


def _integer(given: OptionReader, name: str, default: int) -> int:
    number = given.integer(name, at_least=1)
    return default if number is None else number


def _skip_committed(given: OptionReader) -> bool:
    wanted = given.flag("skipCommittedBatches", default=False)
    if wanted and "topic" not in given:
        given.refuse(
            "skipCommittedBatches needs the option topic: the number of written micro-batches is"
            " kept where that topic is",
            "skipCommittedBatches",
            "topic",
        )
    return wanted


def _codec(given: OptionReader) -> Codec:
    codec = cast("Codec", given.choice("compression", ("zlib", "lz4", "zstd")))
    if "compression" in given and "compressOverBytes" not in given:
        given.refuse(
            "compression without compressOverBytes compresses nothing: give both",
            "compression",
            "compressOverBytes",
        )
    try:
        return checked_codec(codec)
    except ValueError as error:
        given.refuse(str(error), "compression")
        return "zlib"
