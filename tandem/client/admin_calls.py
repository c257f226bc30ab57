"""How an administrator asks: all name servers, every broker, or the masters alone.

What anybody of a broker's nodes can say is asked of the master first, and of the others if it does
not answer. A change waits for a master, for `SWITCH_SECONDS`: so long may a switch
take. If no name server answers, nothing is waited for.
"""

import itertools
from collections.abc import Callable, Collection
from typing import Final, Generic, TypeVar

import msgspec

from tandem.client.backoff import retry_pause_seconds
from tandem.client.core import SWITCH_SECONDS, ClientCore
from tandem.client.errors import (
    BrokerError,
    ClientError,
    ConnectionCause,
    ConnectionLostError,
    RequestTimeoutError,
    RouteCause,
    RouteNotFoundError,
)
from tandem.client.flow import Call, Flow, Pause, call_successfully
from tandem.client.name_servers import REQUEST_TIMEOUT_SECONDS
from tandem.client.routes import newest_cluster
from tandem.wire.errors import MalformedFrameError
from tandem.wire.queue_map import decode_body_by_queue
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.request_signature import ChallengeBody, signed
from tandem.wire.response_code import ResponseCode
from tandem.wire.route import MASTER_ID, BodyT, BrokerData, ClusterInfo, decode_json_body
from tandem.wire.secret_keys import Purpose, key_of

T = TypeVar("T")

EVERYTHING: Final = "*"
"""In place of a topic, where all brokers are meant."""


SUCCESS: Final = frozenset({ResponseCode.SUCCESS.value})


class BrokerAnswer(msgspec.Struct, frozen=True):
    """What the broker of one name says. `address` is that of the node that answered."""

    broker_name: str
    address: str
    command: RemotingCommand

    def body(self, body_type: type[BodyT]) -> BodyT:
        """Return the record in the body.

        Raises:
            ConnectionLostError: it does not parse.
        """
        return decode_body(self.command, body_type, self.address)


class AdminCalls:
    """Asks for one administrator. Flows only; the shell does the rest."""

    def __init__(self, core: ClientCore, secret: str = "") -> None:
        self.core = core
        self._key = key_of(secret, Purpose.REQUEST) if secret else None

    def deadline(self) -> float:
        """When a request that begins now is over."""
        return self.core.clock() + REQUEST_TIMEOUT_SECONDS

    def cluster_info(self) -> Flow[ClusterInfo]:
        """Return all brokers that the name servers know."""
        code = RequestCode.GET_BROKER_CLUSTER_INFO
        return newest_cluster((yield from self.ask_name_servers(code, ClusterInfo)))

    def ask_name_servers(self, code: RequestCode, body_type: type[BodyT]) -> Flow[list[BodyT]]:
        """Return what each name server says that answers: one that has just started knows less."""
        search = _Bodies(body_type)
        yield from self.core.name_servers.ask(code, None, search)
        if not search.bodies:
            reason = f"no name server answers ({'; '.join(search.troubles)})"
            raise RouteNotFoundError(
                EVERYTHING,
                RouteCause.NO_NAME_SERVER,
                reason,
                may_pass=True,
                errors=search.errors,
            )
        return search.bodies

    def masters(
        self, topic: str, broker_name: str | None = None, *, all_wanted: bool = True
    ) -> Flow[dict[str, str]]:
        """Return the masters by broker name; if `all_wanted` none may be missing."""
        info = yield from self.cluster_info()
        brokers = {
            name: broker.broker_addrs.get(MASTER_ID, "")
            for name, broker in sorted(info.broker_addr_table.items())
            if broker_name in (None, name)
        }
        masters = {name: address for name, address in brokers.items() if address}
        if not masters or (all_wanted and not all(brokers.values())):
            if not brokers:
                raise _no_broker(topic, broker_name)
            names = ", ".join(name for name, address in brokers.items() if not address)
            reason = f"no master of broker {names} is registered"
            raise RouteNotFoundError(topic, RouteCause.NO_MASTER, reason, may_pass=True)
        return masters

    def patiently(self, attempt: Callable[[], Flow[T]]) -> Flow[T]:
        """Make attempts until one succeeds, for as long as a change of master may take.

        Raises:
            ClientError: that of the last attempt, or one that does not pass.
        """
        yield from self.cluster_info()  # nobody there is said at once
        end = self.core.clock() + SWITCH_SECONDS
        for retries_count in itertools.count():
            pause = retry_pause_seconds(retries_count)
            try:
                return (yield from attempt())
            except ClientError as error:
                if not may_pass(error) or self.core.clock() + pause >= end:
                    raise
            yield Pause(pause)
        raise AssertionError

    def each_broker(
        self, code: RequestCode, ext: msgspec.Struct | dict[str, str] | None, *but: ResponseCode
    ) -> Flow[list[BrokerAnswer]]:
        """Ask one node of every broker name: the master, and another if it does not answer.

        Those that refuse with a code of `but` are left out.
        """

        def attempt() -> Flow[list[BrokerAnswer]]:
            info = yield from self.cluster_info()
            if not info.broker_addr_table:
                raise _no_broker(EVERYTHING, may_pass=True)
            answers = []
            for name, broker in sorted(info.broker_addr_table.items()):
                try:
                    answers.append((yield from self.one_node(name, broker, code, ext)))
                except BrokerError as error:
                    if error.code not in but:
                        raise
            return answers

        return (yield from self.patiently(attempt))

    def broker(
        self,
        broker_name: str,
        code: RequestCode,
        ext: msgspec.Struct | dict[str, str] | None,
        accepted: Collection[int] = SUCCESS,
    ) -> Flow[BrokerAnswer]:
        """Ask one node of a broker name: the master, and another if it does not answer.

        Raises:
            BrokerError: its answer is none of those that are accepted.
        """

        def attempt() -> Flow[BrokerAnswer]:
            info = yield from self.cluster_info()
            found = info.broker_addr_table.get(broker_name)
            if found is None:
                raise _no_broker(EVERYTHING, broker_name, may_pass=True)
            return (yield from self.one_node(broker_name, found, code, ext, accepted))

        return (yield from self.patiently(attempt))

    def one_node(
        self,
        broker_name: str,
        broker: BrokerData,
        code: RequestCode,
        ext: msgspec.Struct | dict[str, str] | None,
        accepted: Collection[int] = SUCCESS,
    ) -> Flow[BrokerAnswer]:
        """Ask the nodes of a broker in the order of their ids, until one answers."""
        last: ClientError | None = None
        for _, address in sorted(broker.broker_addrs.items()):
            try:
                answer: RemotingCommand = yield Call(address, code, ext, self.deadline())
            except (ConnectionLostError, RequestTimeoutError) as error:
                last = error
                continue
            if answer.code not in accepted:
                raise BrokerError(answer.code, answer.remark or "", address)
            return BrokerAnswer(broker_name, address, answer)
        raise last or RouteNotFoundError(
            EVERYTHING,
            RouteCause.NO_BROKER,
            f"broker {broker_name} has no address",
            may_pass=True,
        )

    def each_master(
        self,
        topic: str,
        code: RequestCode,
        ext: Callable[[str], msgspec.Struct | dict[str, str] | None],
        *,
        names: list[str] | None = None,
        body: bytes = b"",
    ) -> Flow[list[BrokerAnswer]]:
        """Have every master do something, with a header for each broker name; wait for them.

        What is done twice does no harm, so an attempt that may have succeeded is made again.
        """
        done: dict[str, BrokerAnswer] = {}

        def attempt() -> Flow[None]:
            masters = yield from self.masters(topic)
            for name, address in masters.items():
                if name in done or (names is not None and name not in names):
                    continue
                call = Call(address, code, ext(name), self.deadline(), body)
                done[name] = BrokerAnswer(name, address, (yield from self.call_as_allowed(call)))

        yield from self.patiently(attempt)
        return [answer for _, answer in sorted(done.items())]

    def call_as_allowed(self, call: Call) -> Flow[RemotingCommand]:
        """Make a call; if it takes an operator, once more with the signature of one."""
        try:
            return (yield from call_successfully(call))
        except BrokerError as error:
            # Whether it takes one, the broker knows.
            if error.code != ResponseCode.NO_PERMISSION or self._key is None:
                raise
        return (yield from self.call_signed(call))

    def call_signed(self, call: Call) -> Flow[RemotingCommand]:
        """Send a request with a signature, if we have the secret; see `request_signature`."""
        if self._key is None:
            return (yield from call_successfully(call))
        ask = Call(call.address, RequestCode.NODE_CHALLENGE, None, call.deadline)
        answer = yield from call_successfully(ask)
        challenge = decode_body(answer, ChallengeBody, call.address).challenge
        fields = RemotingCommand(call.code, ext=call.ext).ext_fields()
        ext = signed(
            self._key, call.code, fields, call.body, challenge=challenge, target=call.address
        )
        own = Call(call.address, call.code, ext, call.deadline, call.body)
        return (yield from call_successfully(own))


def _no_broker(
    topic: str, broker_name: str | None = None, *, may_pass: bool = False
) -> RouteNotFoundError:
    which = "" if broker_name is None else f" {broker_name}"
    reason = f"no broker{which} is registered"
    return RouteNotFoundError(topic, RouteCause.NO_BROKER, reason, may_pass=may_pass)


class _Bodies(Generic[BodyT]):
    """A `Search` that hears all name servers."""

    is_over = False

    def __init__(self, body_type: type[BodyT]) -> None:
        self._type = body_type
        self.bodies: list[BodyT] = []
        self.troubles: list[str] = []
        self.errors: list[ClientError] = []

    @property
    def has_answer(self) -> bool:
        return bool(self.bodies)

    def heard(self, address: str, answer: RemotingCommand | ClientError) -> None:
        if isinstance(answer, ClientError):
            self._note(str(answer), answer)
        elif answer.code != ResponseCode.SUCCESS:
            refusal = BrokerError(answer.code, answer.remark or "", address)
            self._note(f"name server {address}: {answer.code} {answer.remark}", refusal)
        else:
            try:
                self.bodies.append(decode_json_body(answer.body, self._type))
            except MalformedFrameError as error:
                self._note(f"name server {address}: {error}", illegible(address, error))

    def _note(self, trouble: str, error: ClientError) -> None:
        self.troubles.append(trouble)
        self.errors.append(error)


def may_pass(error: ClientError) -> bool:
    """Whether doing it again may succeed a moment later."""
    match error:
        case RouteNotFoundError():
            return error.may_pass
        case BrokerError():
            return error.code == ResponseCode.SERVICE_NOT_AVAILABLE
        case _:
            return isinstance(error, ConnectionLostError | RequestTimeoutError)


def decode_body(answer: RemotingCommand, body_type: type[BodyT], address: str) -> BodyT:
    """Return the record in the body of an answer.

    Raises:
        ConnectionLostError: it does not parse.
    """
    try:
        return decode_body_by_queue(answer.body, body_type)
    except MalformedFrameError as error:
        raise illegible(address, error) from error


def illegible(address: str, error: Exception) -> ConnectionLostError:
    """Return what a client says of an answer that it cannot read."""
    reason = f"the answer does not parse: {error}"
    return ConnectionLostError(address, ConnectionCause.MALFORMED, reason)
