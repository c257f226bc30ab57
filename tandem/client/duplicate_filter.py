"""Tells messages apart that a producer had to send twice. Pure.

A send that got no answer is sent again and may be stored twice; both copies carry the same UNIQ_KEY
(see `tandem.client.producer`). A reader that cares keeps a filter for as long as it reads:

    seen = DuplicateFilter()
    async for message in consumer.messages("orders"):
        if seen.is_duplicate(message):
            continue

Copies are seconds apart, as far as a send's time limit goes, so a filter that remembers the keys of
a minute or two finds each of them. The filter does not know messages read before it was made.
"""

from typing import Final

from tandem.wire.errors import ArgumentError
from tandem.wire.message import MessageExt
from tandem.wire.message_properties import PROPERTY_UNIQUE_KEY

KEYS_MAX_DEFAULT: Final = 100_000
"""About 12 MB of keys; chosen without measuring."""


class DuplicateFilter:
    """Remembers the last `keys_max` unique keys that it was shown, over all queues of a topic."""

    def __init__(self, keys_max: int = KEYS_MAX_DEFAULT) -> None:
        if keys_max < 1:
            raise ArgumentError(f"keys_max is {keys_max}; it is 1 or more", "keys_max")
        self._keys_max = keys_max
        self._keys: dict[tuple[str, str], None] = {}

    def is_duplicate(self, message: MessageExt) -> bool:
        """True if a message of this topic with this unique key was shown before.

        A message without a unique key is never a duplicate. One that is read a second time from
        the same place is.
        """
        unique_key = message.properties.get(PROPERTY_UNIQUE_KEY)
        if unique_key is None:
            return False
        key = (message.topic, unique_key)
        if key in self._keys:
            return True
        self._keys[key] = None
        if len(self._keys) > self._keys_max:
            del self._keys[next(iter(self._keys))]
        return False
