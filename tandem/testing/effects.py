"""What a test notes of sends and of what came of them, and three promises to check by it. Pure.

An *effect* is what handling a message does once: its key, such as an order's number. What has one
sharding key has to stay in order: the orders of a customer, say, or of a queue.

    effects.sending(7, sharding_key="customer 3")     before a send
    effects.sent(7)                           it was answered with SEND_OK
    effects.handled(7)                        where the work is done, each time

    effects.check_once()                      nothing was handled twice
    effects.check_none_lost()                 what was answered was handled
    effects.check_order()                     the first time, in the order of their sends
"""

from collections import Counter
from collections.abc import Hashable

from tandem.testing.errors import HandledTwiceError, LostError, OrderError, UnknownEffectError


class Effects:
    """The notes of one run."""

    def __init__(self) -> None:
        self._sharding_keys: dict[Hashable, Hashable] = {}
        """By effect, in the order of the sends."""
        self._sent: dict[Hashable, None] = {}
        self._handled: list[Hashable] = []

    def sending(self, effect: Hashable, *, sharding_key: Hashable = None) -> None:
        """Note that a message is about to be sent; again, if it is the same one."""
        self._sharding_keys.setdefault(effect, sharding_key)

    def sent(self, effect: Hashable) -> None:
        """Note that its send was answered with SEND_OK: now it must not get lost.

        Raises:
            UnknownEffectError: nothing was said of it before its send.
        """
        if effect not in self._sharding_keys:
            raise UnknownEffectError(effect)
        self._sent[effect] = None

    def handled(self, effect: Hashable) -> None:
        """Note that its work was done."""
        self._handled.append(effect)

    @property
    def missing(self) -> list[Hashable]:
        """What was answered and not handled yet: wait until it is empty, or give up."""
        handled = set(self._handled)
        return [effect for effect in self._sent if effect not in handled]

    def check(self) -> None:
        """Check all three promises; see each for what it raises."""
        self.check_none_lost()
        self.check_once()
        self.check_order()

    def check_once(self) -> None:
        """Check that nothing was handled twice.

        Raises:
            HandledTwiceError: something was.
        """
        times = {effect: count for effect, count in Counter(self._handled).items() if count > 1}
        if times:
            raise HandledTwiceError(times)

    def check_none_lost(self) -> None:
        """Check that all that was answered was handled.

        Raises:
            LostError: something was not.
        """
        if self.missing:
            raise LostError(self.missing)

    def check_order(self) -> None:
        """Check that effects of one sharding key were handled in the order of their sends.

        A message that comes again does no harm here, and one that was never sent has no place.

        Raises:
            OrderError: an effect came after one that was sent later.
        """
        places = {effect: place for place, effect in enumerate(self._sharding_keys)}
        furthest: dict[Hashable, Hashable] = {}
        for effect in dict.fromkeys(self._handled):
            if effect not in places:
                continue
            sharding_key = self._sharding_keys[effect]
            before = furthest.get(sharding_key, effect)
            if places[effect] < places[before]:
                raise OrderError(sharding_key, before, effect)
            furthest[sharding_key] = effect
