"""How the client's rules ask for things to be done: a generator of effects.

A *flow* is a generator that yields effects and returns a result. It holds the rules (whom to ask,
what to do with the answer, when to try again) and does no I/O. A *shell* runs it: the trio shell
awaits, the blocking shell blocks, a test answers by hand. So there is one set of rules and no twin.

    effect           what the shell sends back
    Call             the broker's RemotingCommand; or throws a ClientError into the flow
    CallMany         one RemotingCommand or ClientError per call, in order
    Pause            None, after that many seconds
    Shared           None, when a flow has ended that is run once for all callers at the same time
"""

from collections.abc import Callable, Generator
from typing import Any, TypeVar

import msgspec

from tandem.client.errors import BrokerError, ClientError
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.response_code import ResponseCode

T = TypeVar("T")


class Call(msgspec.Struct, frozen=True, gc=False):
    """Send one request to `address` ("host:port") and wait for its answer."""

    address: str
    code: int
    ext: msgspec.Struct | dict[str, str] | None
    deadline: float
    """On the shell's clock, in seconds; connecting counts too."""
    body: bytes = b""


class CallMany(msgspec.Struct, frozen=True):
    """Send all requests at once; wake up once, when all are over."""

    calls: list[Call]
    answers: dict[int, RemotingCommand | ClientError] = msgspec.field(default_factory=dict)
    """By place, as they come: what a flow that is closed meanwhile can still know. A shell whose
    flows are never closed half-way leaves it empty."""


class Pause(msgspec.Struct, frozen=True):
    """Wait."""

    seconds: float


class Shared(msgspec.Struct, frozen=True):
    """Run `flow()` unless it is being run under this `key` already; wait for its end either way.

    Cancelling one caller does not end it for the others. Nor does the `deadline`: it is when
    this one stops waiting, without an error. (In the blocking shell nobody else can wait: what the
    flow waits for there ends at the deadline.)
    """

    key: str
    deadline: float
    flow: "Callable[[], Flow[None]]"


Effect = Call | CallMany | Pause | Shared

Flow = Generator[Effect, Any, T]


def call_successfully(call: Call) -> Flow[RemotingCommand]:
    """Make one call whose only good answer is SUCCESS.

    Raises:
        BrokerError: another code.
    """
    answer: RemotingCommand = yield call
    if answer.code != ResponseCode.SUCCESS:
        raise BrokerError(answer.code, answer.remark or "", address=call.address)
    return answer
