"""All name servers of one client: in which order they are asked, and with how much patience.

Each of them knows only the brokers that have registered with it, so none is asked alone: one that
has just started, or that is cut off, answers as readily as the others. A `Search` takes what they
say and knows when that is enough.

The first has a second, and the others less once there is an answer to go on with; those that failed
lately come last, and only if nobody else has anything to say. If none of them has answered, those
that were too slow are asked once more, with RocketMQ's patience.
"""

from collections.abc import Callable, Sequence
from typing import Final, Protocol

import msgspec

from tandem.client.backoff import Backoff
from tandem.client.errors import (
    BrokerError,
    ClientError,
    ConnectionLostError,
    RequestTimeoutError,
)
from tandem.client.flow import Call, Flow
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.response_code import ResponseCode

REQUEST_TIMEOUT_SECONDS: Final = 3.0
"""RocketMQ's mqClientApiTimeout."""

FIRST_SECONDS: Final = 1.0
"""What a name server gets while there are others to ask."""

FURTHER_SECONDS: Final = 0.5
"""What it gets if another has answered already."""


class Search(Protocol):
    """What is looked for. The same for routes and for lists of brokers and topics."""

    @property
    def has_answer(self) -> bool:
        """Whether there is something to go on with, if the others are slow."""

    @property
    def is_over(self) -> bool:
        """Whether nobody else has to be asked."""

    def heard(self, address: str, answer: RemotingCommand | ClientError) -> None:
        """Take what came from one of them."""


class NameServers:
    """The name servers of one client. `clock` in seconds; `backoff` remembers who failed."""

    def __init__(
        self, addresses: Sequence[str], backoff: Backoff, clock: Callable[[], float]
    ) -> None:
        self._addresses = list(addresses)
        self._backoff = backoff
        self._clock = clock
        self._first = 0

    def ask(self, code: int, ext: msgspec.Struct | None, search: Search) -> Flow[None]:
        """Ask all of them, until the search is over. That one fails is heard by the search.

        Raises:
            BrokerError: nobody has an answer, and one says that this client may not ask.
        """
        refusals: list[BrokerError] = []
        seconds = REQUEST_TIMEOUT_SECONDS if len(self._addresses) == 1 else FIRST_SECONDS
        failures = yield from self._ask_in_turn(
            self._in_turn(), code, ext, search, seconds, refusals
        )
        if len(self._addresses) > 1 and len(failures) == len(self._addresses):
            slow = [each for each, error in failures if isinstance(error, RequestTimeoutError)]
            yield from self._ask_in_turn(slow, code, ext, search, REQUEST_TIMEOUT_SECONDS, refusals)
        if refusals and not search.has_answer:
            raise refusals[0]

    def _ask_in_turn(
        self,
        addresses: list[str],
        code: int,
        ext: msgspec.Struct | None,
        search: Search,
        seconds: float,
        refusals: list[BrokerError],
    ) -> Flow[list[tuple[str, ClientError]]]:
        """Return those that did not answer, and why. Who says no adds to `refusals`."""
        failures = []
        for address in addresses:
            if search.is_over:
                break
            if search.has_answer:
                if self._backoff.is_to_be_avoided(address, self._clock()):
                    continue
                seconds = FURTHER_SECONDS
            had_answer = search.has_answer
            answer = yield from self._ask_one(address, code, ext, seconds)
            if isinstance(answer, ClientError):
                failures.append((address, answer))
            elif answer.code == ResponseCode.NO_PERMISSION:
                refusals.append(BrokerError(answer.code, answer.remark or "", address))
            search.heard(address, answer)
            if search.has_answer and not had_answer:
                self._first = self._addresses.index(address)
        return failures

    def _in_turn(self) -> list[str]:
        """From the first that had an answer on; those that fail or are silent come last."""
        now = self._clock()
        in_turn = self._addresses[self._first :] + self._addresses[: self._first]
        return sorted(in_turn, key=lambda each: self._backoff.is_to_be_avoided(each, now))

    def _ask_one(
        self, address: str, code: int, ext: msgspec.Struct | None, seconds: float
    ) -> Flow[RemotingCommand | ClientError]:
        try:
            answer: RemotingCommand = yield Call(address, code, ext, self._clock() + seconds)
        except RequestTimeoutError as error:
            self._backoff.fell_silent(address, self._clock())
            return error
        except ConnectionLostError as error:
            return error
        self._backoff.spoke(address)
        return answer
