"""Which topics a store knows: those with queues, and those in its table.

A topic that is asked for by name and that no store knows is an error by default. Kafka's source
fails on one likewise, and a name with a typing error would be an empty table that looks like a
true answer. A log without anything beside it knows no topics, and then nothing is concluded.
"""

from collections.abc import Sequence

from tandem.data_file import TOPIC_TABLE_BYTES_MAX, topics_in_table
from tandem.spark.commitlog.places import StorePlace
from tandem.spark.commitlog.queue_starts import sub_directories
from tandem.spark.errors import UnknownTopicError
from tandem.wire.store_layout import QUEUE_KINDS


def known_topics(place: StorePlace) -> frozenset[str] | None:
    """Return the topics of a store; None if nothing beside its log says."""
    storage = place.storage
    queues = {
        topic for kind in QUEUE_KINDS for topic in sub_directories(storage, place.beside(kind))
    }
    table = _table(place)
    return table | queues or None


def _table(place: StorePlace) -> frozenset[str]:
    if not place.root:
        return frozenset()
    try:
        entries = place.storage.entries(place.beside("config"))
        size = next((entry.size for entry in entries if entry.name == "topics.json"), 0)
        data = bytearray(min(size, TOPIC_TABLE_BYTES_MAX))
        with place.storage.opened(place.beside("config/topics.json")) as opened:
            opened.read_into(memoryview(data), 0)
    except OSError:
        return frozenset()
    return topics_in_table(bytes(data)) or frozenset()


def check_topics(topics: frozenset[str] | None, places: Sequence[StorePlace]) -> None:
    """See that each of `topics` is known to some store, or that one store cannot tell.

    Raises:
        UnknownTopicError: a topic is not.
    """
    if not topics or not places:
        return
    known: set[str] = set()
    for place in places:
        found = known_topics(place)
        if found is None:
            return
        known |= found
    unknown = sorted(topics - known)
    if unknown:
        stores = ", ".join(place.name for place in places)
        some = ", ".join(sorted(known)[:20]) + (", …" if len(known) > 20 else "")
        raise UnknownTopicError(
            f"no topic {', '.join(unknown)} in {stores}, which has {some}; give"
            " ignoreMissingTopics=true if no rows are a good answer",
            unknown,
        )
