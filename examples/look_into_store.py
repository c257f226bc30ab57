"""Look into a store directory, ours or RocketMQ's, without a node. Nothing is written.

    python examples/look_into_store.py data/broker-a-0 [TOPIC KEY]

`tandem log` does the same on the command line, and more.
"""

import sys

from tandem.log import (
    LogDamage,
    RecordFilter,
    StoreDirectory,
    dump_records,
    open_store_directory,
    store_stat,
)


def print_topics(store: StoreDirectory) -> None:
    """Say what every queue holds, and every place in the log that is no record."""
    found = store_stat(store, RecordFilter())
    for queue in found.queues:
        print(f"{queue.topic} queue {queue.queue_id}: {queue.message_count} messages")
    for damage in found.damages:
        print(f"damage: {damage}")


def print_messages(store: StoreDirectory, topic: str, key: str) -> None:
    """Print the messages of a topic that have this key. Index files are asked if there are any."""
    for found in dump_records(store, RecordFilter(topics=frozenset({topic}), key=key)):
        if isinstance(found, LogDamage):
            print(f"damage: {found}")
            continue
        message = found.message
        # The body as the producer gave it: batches are in `found.body.inner`.
        text = found.body.body.decode("utf-8", "backslashreplace")
        place = f"queue {message.queue_id}, offset {message.queue_offset}"
        print(f"{place}, at byte {message.physical_offset}: {text}")


if __name__ == "__main__":
    if not sys.argv[1:]:
        sys.exit(__doc__)
    directory, *topic_and_key = sys.argv[1:]
    opened = open_store_directory(directory)
    print_topics(opened)
    if topic_and_key:
        print_messages(opened, *topic_and_key)
