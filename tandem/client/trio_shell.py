"""Runs flows under trio: one connection per address, any number of requests in flight on it.

    TrioShell               runs flows; owns the nursery, the connections, the upkeep
      _Connection           a session over a stream
        _receive_loop       stream -> session -> the tasks that wait
        _send_loop          session -> stream; all that gathered leaves with one call
        _expiry_loop        ends requests whose deadline has passed

A task that makes a request leaves its frame in the session and sleeps; one that is woken costs one
reschedule and no event, channel or cancel scope. Frames gather by themselves while the sender is
busy, so there is no timer and no linger.

Cancelling a task that waits withdraws its request if it has not left. The connection lives on.
"""

import copy
import logging
from collections.abc import Awaitable, Callable
from typing import Final, Protocol, TypeVar, assert_never

import outcome
import trio

from tandem.client.core import UPKEEP_SECONDS, ClientCore, split_address
from tandem.client.errors import ClientError, ConnectionLostError, RequestTimeoutError
from tandem.client.flow import Call, CallMany, Flow, Pause, Shared
from tandem.client.session import Session
from tandem.wire.errors import WireError
from tandem.wire.remoting_command import RemotingCommand

logger = logging.getLogger(__name__)

CONNECT_TIMEOUT_SECONDS: Final = 3.0
"""RocketMQ's connectTimeoutMillis."""

RECEIVE_BYTES: Final = 131_072

T = TypeVar("T")

Answer = RemotingCommand | ClientError
Waiter = Callable[[Answer], None]


class ByteStream(Protocol):
    """What the client needs of a connection. `TcpStream` is one, and `trio.SocketStream`.

    A broken stream raises `trio.BrokenResourceError`, one closed on this side
    `trio.ClosedResourceError`; or either of them an `OSError`.
    """

    async def receive_some(self, max_bytes: int, /) -> bytes | bytearray:
        """Return 1 to `max_bytes` bytes, or nothing at the end."""

    async def send_all(self, data: bytes, /) -> None:
        """Send all of `data`."""

    async def aclose(self) -> None:
        """Close; even if cancelled."""


StreamOpener = Callable[[str, int], Awaitable[ByteStream]]
"""Opens a connection to host and port; raises `OSError` or `trio.BrokenResourceError`."""


class _Connection:
    """One connection, open until it is closed once and for all.

    `on_end` is called at that very moment, so that nobody finds a closed one.
    """

    def __init__(
        self,
        address: str,
        stream: ByteStream,
        on_first_answer: Callable[[], None],
        on_data: Callable[[], None],
        on_end: "Callable[[_Connection], None]",
    ) -> None:
        self.address = address
        self._is_open = True
        self._on_end = on_end
        self._stream = stream
        self._session: Session[Waiter] = Session()
        self._on_first_answer = on_first_answer
        self._on_data = on_data
        self._idle_sender: trio.lowlevel.Task | None = None
        self._expiry = trio.CancelScope()
        self._end_scope = trio.CancelScope()

    @property
    def answered(self) -> bool:
        """True once the broker has answered anything."""
        return self._session.answered

    def submit(self, call: Call, waiter: Waiter) -> int:
        """Make a request. `waiter` is called once, unless `forget` is."""
        opaque = self._session.request(call.code, call.ext, call.body, waiter, call.deadline)
        if self._idle_sender is not None:
            trio.lowlevel.reschedule(self._idle_sender)
            self._idle_sender = None
        if call.deadline < self._expiry.deadline:  # noqa: PLR1730  assigning costs
            self._expiry.deadline = call.deadline
        return opaque

    def forget(self, opaque: int) -> None:
        """Nobody waits any more: withdraw the request, or drop its answer when it comes."""
        self._session.forget(opaque)

    def close(self, reason: str) -> None:
        """End the connection; every waiting task learns it at once."""
        if not self._is_open:
            return
        self._is_open = False
        self._on_end(self)
        self._end_scope.cancel()
        for abandoned in self._session.connection_lost():
            abandoned.waiter(
                ConnectionLostError(self.address, reason, outcome_unknown=abandoned.outcome_unknown)
            )

    async def run(self) -> None:
        """Serve until the connection ends or is cancelled; then close the stream."""
        try:
            with self._end_scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._receive_loop)
                    nursery.start_soon(self._send_loop)
                    nursery.start_soon(self._expiry_loop)
        finally:
            self.close("the client was closed")
            with trio.CancelScope() as at_once:
                at_once.cancel()
                await self._stream.aclose()

    async def _receive_loop(self) -> None:
        try:
            while data := await self._stream.receive_some(RECEIVE_BYTES):
                self._take(bytes(data))
        except (trio.BrokenResourceError, trio.ClosedResourceError, OSError) as error:
            self.close(_reason(error))
        except WireError as error:
            logger.warning("broker %s broke the protocol: %s", self.address, error)
            self.close(f"the broker broke the protocol: {error}")
        else:
            self.close("the broker ended it")

    def _take(self, data: bytes) -> None:
        session = self._session
        had_answered = session.answered
        self._on_data()
        session.receive_data(data)
        while (answer := session.next_answer()) is not None:
            answer[0](answer[1])
        if not had_answered and session.answered:
            self._on_first_answer()

    async def _send_loop(self) -> None:
        try:
            while True:
                data = self._session.data_to_send()
                if data:
                    await self._stream.send_all(data)
                else:
                    await self._wait_for_work()
        except (trio.BrokenResourceError, trio.ClosedResourceError, OSError) as error:
            self.close(_reason(error))

    async def _wait_for_work(self) -> None:
        def abort(_: object) -> trio.lowlevel.Abort:
            self._idle_sender = None
            return trio.lowlevel.Abort.SUCCEEDED

        self._idle_sender = trio.lowlevel.current_task()
        await trio.lowlevel.wait_task_rescheduled(abort)

    async def _expiry_loop(self) -> None:
        while True:
            # submit() brings the deadline forward when an earlier one comes in.
            self._expiry = trio.CancelScope(deadline=self._session.next_deadline())
            with self._expiry:
                await trio.sleep_forever()
            for abandoned in self._session.expire(trio.current_time()):
                abandoned.waiter(
                    RequestTimeoutError(self.address, outcome_unknown=abandoned.outcome_unknown)
                )


class _Gather:
    """Many answers, one wake-up."""

    def __init__(self, count: int) -> None:
        self._answers: dict[int, Answer] = {}
        self._count = count
        self._task: trio.lowlevel.Task | None = None
        self._in_flight: list[tuple[_Connection, int]] = []

    def waiter(self, index: int) -> Waiter:
        """Return what takes the answer of call number `index`."""

        def take(answer: Answer) -> None:
            self._answers[index] = answer
            if len(self._answers) == self._count and self._task is not None:
                trio.lowlevel.reschedule(self._task)
                self._task = None

        return take

    def in_flight(self, connection: _Connection, opaque: int) -> None:
        """Remember a request, so that cancelling forgets it."""
        self._in_flight.append((connection, opaque))

    async def wait(self) -> list[Answer]:
        """Return all answers in the order of the calls."""

        def abort(_: object) -> trio.lowlevel.Abort:
            for connection, opaque in self._in_flight:
                connection.forget(opaque)
            return trio.lowlevel.Abort.SUCCEEDED

        if len(self._answers) < self._count:
            self._task = trio.lowlevel.current_task()
            await trio.lowlevel.wait_task_rescheduled(abort)
        else:
            await trio.lowlevel.checkpoint()
        return [self._answers[index] for index in range(self._count)]


class _SharedWork:
    """One piece of work that several tasks wait for."""

    def __init__(self) -> None:
        self.done = trio.Event()
        self.error: ClientError | None = None


class TrioShell:
    """Runs the flows of one client between `open` and `close`."""

    def __init__(self, core: ClientCore, open_stream: StreamOpener) -> None:
        self._core = core
        self._open_stream = open_stream
        self._connections: dict[str, _Connection] = {}
        self._shared: dict[str, _SharedWork] = {}
        self._nursery_manager = trio.open_nursery()
        self._nursery: trio.Nursery | None = None

    async def open(self) -> None:
        """Start the upkeep. Connections are opened when they are needed."""
        self._nursery = await self._nursery_manager.__aenter__()
        self._nursery.start_soon(self._upkeep)

    async def close(self, *, politely: bool) -> None:
        """End the upkeep and all connections. `politely`: tell the brokers first, 1 s at most."""
        if politely:
            with trio.move_on_after(1.0):
                await self.run(self._core.goodbye())
        self.nursery.cancel_scope.cancel()
        try:
            # The body's own exception stays as it is: only what went wrong in the background comes
            # out of the nursery as a group.
            await self._nursery_manager.__aexit__(None, None, None)
        finally:
            # Not before: a background task that was just woken may start another one.
            self._nursery = None

    @property
    def nursery(self) -> trio.Nursery:
        """Where tasks live that end with the client.

        Raises:
            RuntimeError: the client is not open.
        """
        if self._nursery is None:
            raise RuntimeError('the client is not open; use it with "async with"')
        return self._nursery

    async def run(self, flow: Flow[T]) -> T:
        """Run a flow to its end. If it is cancelled, its request in flight is forgotten.

        Raises:
            ClientError: as the flow says.
            RuntimeError: the client is not open.
        """
        try:
            effect = next(flow)
            while True:
                answer: object
                if isinstance(effect, Call):
                    answer = await self._call(effect)
                else:
                    answer = await self._carry_out(effect)
                if isinstance(answer, ClientError):
                    effect = flow.throw(answer)
                else:
                    effect = flow.send(answer)
        except StopIteration as stop:
            result: T = stop.value
            return result
        finally:
            # A cancelled flow ends here and now, not when the collector finds it.
            flow.close()

    async def _call(self, call: Call) -> Answer:
        connection = self._connections.get(call.address)
        if connection is None:
            try:
                connection = await self._connect(call.address, call.deadline)
            except ClientError as error:
                return error
        task = trio.lowlevel.current_task()
        opaque = connection.submit(
            call, lambda answer: trio.lowlevel.reschedule(task, outcome.Value(answer))
        )

        def abort(_: object) -> trio.lowlevel.Abort:
            connection.forget(opaque)
            return trio.lowlevel.Abort.SUCCEEDED

        answer: Answer = await trio.lowlevel.wait_task_rescheduled(abort)
        return answer

    async def _carry_out(self, effect: CallMany | Pause | Shared) -> object:
        match effect:
            case CallMany():
                return await self._call_many(effect.calls)
            case Pause():
                await trio.sleep(effect.seconds)
                return None
            case Shared():
                try:
                    with trio.move_on_at(effect.deadline):
                        await self._share(effect.key, lambda: self.run(effect.flow()))
                except ClientError as error:
                    return error
                return None
            case _:
                assert_never(effect)

    async def _call_many(self, calls: list[Call]) -> list[Answer]:
        gather = _Gather(len(calls))
        unreachable: dict[str, ClientError] = {}
        for index, call in enumerate(calls):
            connection = self._connections.get(call.address)
            if connection is None:
                try:
                    if call.address in unreachable:
                        # One dial for all of them: each further one would wait out its pause.
                        raise copy.copy(unreachable[call.address])
                    connection = await self._connect(call.address, call.deadline)
                except ClientError as error:
                    unreachable[call.address] = error
                    gather.waiter(index)(error)
                    continue
            gather.in_flight(connection, connection.submit(call, gather.waiter(index)))
        return await gather.wait()

    async def _connect(self, address: str, deadline: float) -> _Connection:
        with trio.move_on_at(deadline) as scope:
            await self._share(f"connect {address}", lambda: self._dial(address))
        if scope.cancelled_caught:
            raise RequestTimeoutError(address, outcome_unknown=False)
        connection = self._connections.get(address)
        if connection is None:
            raise ConnectionLostError(address, "it ended at once", outcome_unknown=False)
        return connection

    async def _dial(self, address: str) -> None:
        """Open the one connection to `address`; others wait for the same attempt."""
        backoff = self._core.backoff
        await trio.sleep(backoff.seconds_left(address, trio.current_time()))
        reason = f"no connection within {CONNECT_TIMEOUT_SECONDS:g} s"
        stream = None
        with trio.move_on_after(CONNECT_TIMEOUT_SECONDS) as scope:
            try:
                stream = await self._open_stream(*split_address(address))
            except (OSError, ValueError, trio.BrokenResourceError) as error:
                # ValueError: a route can hold an address that is none.
                reason = _reason(error)
        if stream is None:
            backoff.failed(address, trio.current_time())
            if scope.cancelled_caught:
                backoff.fell_silent(address, trio.current_time())
            raise ConnectionLostError(address, reason, outcome_unknown=False)
        connection = _Connection(
            address,
            stream,
            on_first_answer=lambda: backoff.succeeded(address),
            # Also an answer that comes too late: this one is slow, not frozen.
            on_data=lambda: backoff.spoke(address),
            on_end=self._connection_ended,
        )
        self._connections[address] = connection
        self.nursery.start_soon(connection.run)

    def _connection_ended(self, connection: _Connection) -> None:
        del self._connections[connection.address]
        if not connection.answered:
            self._core.backoff.failed(connection.address, trio.current_time())

    async def _share(self, key: str, work: Callable[[], Awaitable[object]]) -> None:
        shared = self._shared.get(key)
        if shared is None:
            shared = self._shared[key] = _SharedWork()
            self.nursery.start_soon(self._do_shared, key, shared, work)
        await shared.done.wait()
        if shared.error is not None:
            # A copy each, so that the tracebacks of many tasks do not pile up in one exception.
            raise copy.copy(shared.error)

    async def _do_shared(
        self, key: str, shared: _SharedWork, work: Callable[[], Awaitable[object]]
    ) -> None:
        try:
            await work()
        except ClientError as error:
            shared.error = error
        finally:
            del self._shared[key]
            shared.done.set()

    async def _upkeep(self) -> None:
        while True:
            await trio.sleep(UPKEEP_SECONDS)
            await self.run(self._core.upkeep())


def _reason(error: BaseException) -> str:
    """What happened, in the system's words if it has some."""
    cause = error.__cause__ or error
    while isinstance(cause, BaseExceptionGroup):
        # One for each address of a name; with one address they are all there is to say.
        cause = cause.exceptions[-1]
    words = cause.strerror if isinstance(cause, OSError) else None
    return words or str(cause) or type(cause).__name__
