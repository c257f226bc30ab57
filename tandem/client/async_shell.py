"""Runs flows under trio and asyncio: one connection per address, any number of requests on it.

    AsyncShell              runs flows; owns its tasks, the connections, the upkeep
      _Connection           a session over a stream
        _receive_loop       stream -> session -> the tasks that wait
        _send_loop          session -> stream; all that gathered leaves with one call
        _expiry_loop        ends requests whose deadline has passed

A task that makes a request leaves its frame in the session and sleeps; one that is woken costs one
reschedule and no event, channel or cancel scope. Frames gather by themselves while the sender is
busy, so there is no timer and no linger.

Cancelling a task that waits withdraws its request if it has not left. The connection lives on.

Which event loop it is, is found out when the shell is opened (see `tandem.client.event_loop`).
"""

import copy
import logging
import math
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeVar, assert_never

import anyio
from anyio.abc import TaskGroup

from tandem.client.broker_request import BrokerRequest
from tandem.client.core import UPKEEP_SECONDS, ClientCore, split_address
from tandem.client.errors import ClientError, ConnectionLostError, RequestTimeoutError
from tandem.client.errors import ConnectionCause as Cause
from tandem.client.event_loop import Background, ByteStream, EventLoop, LoopClock, Parked, not_open
from tandem.client.flow import Call, CallMany, Flow, Pause, Shared
from tandem.client.home_process import HomeProcess
from tandem.client.lost_connection import cause_of, reason_of
from tandem.client.running_loop import running_event_loop
from tandem.client.running_machine import machine_of_task
from tandem.client.session import Session
from tandem.client.signer import Signer
from tandem.client.tls import TLSByteStream
from tandem.wire.errors import WireError
from tandem.wire.remoting_command import RemotingCommand

logger = logging.getLogger(__name__)

CONNECT_TIMEOUT_SECONDS: Final = 3.0
"""RocketMQ's connectTimeoutMillis."""

GOODBYE_SECONDS: Final = 1.0

RECEIVE_BYTES: Final = 131_072

T = TypeVar("T")

Answer = RemotingCommand | ClientError
Waiter = Callable[[Answer], None]


StreamOpener = Callable[[str, int], Awaitable[ByteStream]]
"""Opens a connection to host and port; raises `OSError` or a `BrokenResourceError`."""


class _Connection:
    """One connection, open until it is closed once and for all.

    `on_end` is called at that very moment, so that nobody finds a closed one.
    """

    def __init__(
        self,
        address: str,
        stream: ByteStream,
        loop: EventLoop,
        signer: Signer | None,
        on_first_answer: Callable[[], None],
        on_data: Callable[[], None],
        on_request: Callable[[BrokerRequest], None],
        on_end: "Callable[[_Connection], None]",
    ) -> None:
        self.address = address
        self._is_open = True
        self._on_end = on_end
        self._stream = stream
        self._session: Session[Waiter] = Session(signer=signer)
        self._on_first_answer = on_first_answer
        self._on_data = on_data
        self._on_request = on_request
        self._loop = loop
        self._idle_sender: Parked | None = None
        self._expires_at = math.inf
        self._expiry = anyio.CancelScope()
        self._end_scope = anyio.CancelScope()

    @property
    def answered(self) -> bool:
        """True once the broker has answered anything."""
        return self._session.answered

    def submit(self, call: Call, waiter: Waiter) -> int:
        """Make a request. `waiter` is called once, unless `forget` is."""
        opaque = self._session.request(call.code, call.ext, call.body, waiter, call.deadline)
        if self._idle_sender is not None:
            self._wake_sender()
        if call.deadline < self._expires_at:
            self._expires_at = self._expiry.deadline = call.deadline
        return opaque

    def _respond(self, response: RemotingCommand) -> None:
        if self._is_open:
            self._session.respond(response)
            self._wake_sender()

    def _wake_sender(self) -> None:
        if self._idle_sender is not None:
            self._idle_sender.wake(None)
            self._idle_sender = None

    def forget(self, opaque: int) -> None:
        """Nobody waits any more: withdraw the request, or drop its answer when it comes."""
        self._session.forget(opaque)

    def close(self, cause: Cause, reason: str) -> None:
        """End the connection; every waiting task learns it at once."""
        if not self._is_open:
            return
        self._is_open = False
        self._on_end(self)
        self._end_scope.cancel()
        lost = partial(ConnectionLostError, self.address, cause, reason)
        for abandoned in self._session.connection_lost():
            abandoned.waiter(lost(outcome_unknown=abandoned.outcome_unknown))

    async def run(self) -> None:
        """Serve until the connection ends or is cancelled; then close the stream."""
        try:
            with self._end_scope:
                async with anyio.create_task_group() as group:
                    group.start_soon(self._receive_loop)
                    group.start_soon(self._send_loop)
                    group.start_soon(self._expiry_loop)
        finally:
            self.close(Cause.CLOSED, "the client was closed")
            with anyio.CancelScope() as at_once:
                at_once.cancel()
                await self._stream.aclose()

    async def _receive_loop(self) -> None:
        try:
            while data := await self._stream.receive_some(RECEIVE_BYTES):
                self._take(bytes(data))
        except self._loop.stream_errors as error:
            self.close(cause_of(error, Cause.ENDED), reason_of(error))
        except WireError as error:
            logger.warning("broker %s broke the protocol: %s", self.address, error)
            self.close(Cause.MALFORMED, f"the broker broke the protocol: {error}")
        else:
            self.close(Cause.ENDED, "the broker ended it")

    def _take(self, data: bytes) -> None:
        session = self._session
        had_answered = session.answered
        self._on_data()
        session.receive_data(data)
        while (answer := session.next_answer()) is not None:
            answer[0](answer[1])
        if self._idle_sender is not None and session.has_to_send:
            self._wake_sender()
        if session.requests:
            requests, session.requests = session.requests, []
            for command in requests:
                self._on_request(BrokerRequest(self.address, command, self._respond))
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
        except self._loop.stream_errors as error:
            self.close(cause_of(error, Cause.ENDED), reason_of(error))

    async def _wait_for_work(self) -> None:
        self._idle_sender = self._loop.parked()
        await self._idle_sender.wait(self._nobody_waits)

    def _nobody_waits(self) -> None:
        self._idle_sender = None

    async def _expiry_loop(self) -> None:
        while True:
            # submit() brings the deadline forward when an earlier one comes in.
            self._expires_at = self._session.next_deadline()
            self._expiry = anyio.CancelScope(deadline=self._expires_at)
            with self._expiry:
                await anyio.sleep_forever()
            for abandoned in self._session.expire(self._loop.current_time()):
                abandoned.waiter(
                    RequestTimeoutError(self.address, outcome_unknown=abandoned.outcome_unknown)
                )


class _Gather:
    """Many answers, one wake-up."""

    def __init__(self, count: int, answers: dict[int, Answer]) -> None:
        self._answers = answers
        self._count = count
        self._parked: Parked | None = None
        self._in_flight: list[tuple[_Connection, int]] = []

    def waiter(self, index: int) -> Waiter:
        """Return what takes the answer of call number `index`."""

        def take(answer: Answer) -> None:
            self._answers[index] = answer
            if len(self._answers) == self._count and self._parked is not None:
                self._parked.wake(None)
                self._parked = None

        return take

    def in_flight(self, connection: _Connection, opaque: int) -> None:
        """Remember a request, so that cancelling forgets it."""
        self._in_flight.append((connection, opaque))

    async def wait(self, loop: EventLoop) -> list[Answer]:
        """Return all answers in the order of the calls."""
        if len(self._answers) < self._count:
            self._parked = loop.parked()
            await self._parked.wait(self._forget)
        else:
            await anyio.lowlevel.checkpoint()
        return [self._answers[index] for index in range(self._count)]

    def _forget(self) -> None:
        self._parked = None
        for connection, opaque in self._in_flight:
            connection.forget(opaque)


class _SharedWork:
    """One piece of work that several tasks wait for."""

    def __init__(self) -> None:
        self.done = anyio.Event()
        self.error: ClientError | None = None


class AsyncShell:
    """Runs the flows of one client between `open` and `close`.

    The clock of `core` has to be a `LoopClock`: it runs from `open` on.
    """

    def __init__(self, core: ClientCore, open_stream: StreamOpener | None = None) -> None:
        self._core = core
        self._open_stream = open_stream
        self._connections: dict[str, _Connection] = {}
        self._shared: dict[str, _SharedWork] = {}
        self._event_loop: EventLoop | None = None
        self._background: Background | None = None
        self._tasks: TaskGroup | None = None
        self._home = HomeProcess()
        self.park: Callable[[], Parked] = _not_parked
        """Returns the present task, about to sleep."""

    async def open(self) -> None:
        """Start the upkeep. Connections are opened when they are needed.

        Raises:
            RuntimeError: no event loop is running.
            NotOpenError: this is a fork of the client's process.
        """
        self._home.check()
        self._event_loop = running_event_loop()
        machine = machine_of_task.get()
        if machine is not None and self._open_stream is None:
            self._open_stream = machine.open_stream
        if isinstance(self._core.clock, LoopClock):
            self._core.clock.read = self._event_loop.current_time
        self.park = self._event_loop.parked
        self._background = self._event_loop.background()
        self._tasks = await self._background.open()
        self._tasks.start_soon(self._upkeep)

    async def close(self, *, politely: bool) -> None:
        """End the upkeep and all connections. `politely`: tell the brokers first, 1 s at most.

        That second is also had by a task that is cancelled.
        """
        if self._background is None:
            raise not_open()
        try:
            if politely:
                with anyio.move_on_after(GOODBYE_SECONDS, shield=True):
                    await self.run(self._core.goodbye())
        finally:
            try:
                await self._background.close()
            finally:
                # Not before: a background task that was just woken may start another one.
                self._tasks = None

    @property
    def tasks(self) -> TaskGroup:
        """Where tasks live that end with the client.

        Raises:
            NotOpenError: the client is not open.
        """
        if self._tasks is None:
            raise not_open()
        return self._tasks

    @property
    def _loop(self) -> EventLoop:
        if self._event_loop is None:
            raise not_open()
        return self._event_loop

    async def run(self, flow: Flow[T]) -> T:
        """Run a flow to its end. If it is cancelled, its request in flight is forgotten.

        Raises:
            ClientError: as the flow says.
            NotOpenError: the client is not open.
        """
        try:
            effect = next(flow)
            while True:
                answer: object
                if isinstance(effect, Call):
                    answer = await self.call(effect)
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

    def call(self, call: Call) -> Awaitable[Answer]:
        """Make a call at once, if there is a connection; the answer is to be awaited at once, too.

        If that is cancelled, the request is forgotten.
        """
        connection = self._connections.get(call.address)
        if connection is None:
            return self._connect_and_call(call)
        parked = self.park()
        opaque = connection.submit(call, parked.wake)
        return parked.wait(partial(connection.forget, opaque))

    async def _connect_and_call(self, call: Call) -> Answer:
        try:
            await self._connect(call.address, call.deadline)
        except ClientError as error:
            return error
        return await self.call(call)

    async def _carry_out(self, effect: CallMany | Pause | Shared) -> object:
        match effect:
            case CallMany():
                return await self._call_many(effect)
            case Pause():
                await anyio.sleep(effect.seconds)
                return None
            case Shared():
                try:
                    with anyio.CancelScope(deadline=effect.deadline):
                        await self._share(effect.key, lambda: self.run(effect.flow()))
                except ClientError as error:
                    return error
                return None
            case _:
                assert_never(effect)

    async def _call_many(self, effect: CallMany) -> list[Answer]:
        calls = effect.calls
        gather = _Gather(len(calls), effect.answers)
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
        return await gather.wait(self._loop)

    async def _connect(self, address: str, deadline: float) -> _Connection:
        with anyio.CancelScope(deadline=deadline) as scope:
            await self._share(f"connect {address}", lambda: self._dial(address))
        if scope.cancelled_caught:
            raise RequestTimeoutError(address, outcome_unknown=False)
        connection = self._connections.get(address)
        if connection is None:
            raise ConnectionLostError(
                address, Cause.ENDED, "it ended at once", outcome_unknown=False
            )
        return connection

    async def _dial(self, address: str) -> None:
        """Open the one connection to `address`; others wait for the same attempt."""
        backoff = self._core.backoff
        loop = self._loop
        await anyio.sleep(max(0.0, backoff.seconds_left(address, loop.current_time())))
        unreachable: tuple[type[Exception], ...] = (ValueError, *loop.stream_errors)
        reason = f"no connection within {CONNECT_TIMEOUT_SECONDS:g} s"
        cause = Cause.UNREACHABLE
        stream = None
        with anyio.move_on_after(CONNECT_TIMEOUT_SECONDS) as scope:
            try:
                stream = await self._open(*split_address(address))
            except unreachable as error:
                # ValueError: a route can hold an address that is none.
                cause, reason = cause_of(error, cause), reason_of(error)
        if stream is None:
            backoff.failed(address, loop.current_time())
            if scope.cancelled_caught:
                backoff.fell_silent(address, loop.current_time())
            raise ConnectionLostError(address, cause, reason, outcome_unknown=False)
        connection = _Connection(
            address,
            stream,
            loop,
            self._core.signer(address),
            on_first_answer=lambda: backoff.succeeded(address),
            # Also an answer that comes too late: this one is slow, not frozen.
            on_data=lambda: backoff.spoke(address),
            on_request=self._core.broker_requests.serve,
            on_end=self._connection_ended,
        )
        self._connections[address] = connection
        self.tasks.start_soon(connection.run)

    async def _open(self, host: str, port: int) -> ByteStream:
        open_stream = self._open_stream or self._loop.open_tcp
        stream = await open_stream(host, port)
        if self._core.tls is None:
            return stream
        return await TLSByteStream.open(stream, self._core.tls(), host)

    def _connection_ended(self, connection: _Connection) -> None:
        del self._connections[connection.address]
        self._core.connection_ended(connection.address)
        if not connection.answered:
            self._core.backoff.failed(connection.address, self._loop.current_time())

    async def _share(self, key: str, work: Callable[[], Awaitable[object]]) -> None:
        shared = self._shared.get(key)
        if shared is None:
            shared = self._shared[key] = _SharedWork()
            self.tasks.start_soon(self._do_shared, key, shared, work)
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
            await anyio.sleep(UPKEEP_SECONDS)
            await self.run(self._core.upkeep())


def _not_parked() -> Parked:
    raise not_open()
