"""Pairs requests with answers on one connection. No I/O: bytes and the time come from the shell.

                 request()                    data_to_send()
    (nothing) ---------------> GATHERED --------------------------> SENT
                                  |                                   |
                                  | forget(), expire(),               | forget(), expire(),
                                  | connection_lost():                | connection_lost():
                                  v   it never left                   v   outcome unknown
                               (nothing) <------------------------ (nothing)
                                              next_answer()

That is the life of one request; the session itself only ends once. A request that is withdrawn
while it is GATHERED is never sent at all. An answer to a request that nobody waits for any more is
dropped, as RocketMQ's clients do.

The first request goes out with a JSON header, which every broker reads. If the answer says that it
comes from a broker of ours, the session goes on in MSGPACK, which takes half the time.

With a signer the first request is one of the session's own, which asks whether the broker knows
seals. Until it is answered the others wait, GATHERED.
"""

import enum
from typing import Final, Generic, TypeVar

import msgspec

from tandem.client.signer import Signer, SignerState
from tandem.wire.frame_buffer import FrameBuffer
from tandem.wire.remoting_command import (
    RESPONSE_FLAG,
    RemotingCommand,
    SerializeType,
    encode_frame,
    encode_msgpack_request,
)
from tandem.wire.request_code import RequestCode

OPAQUE_COUNT: Final = 2**31
"""Opaques are 0 to 2**31 - 1; RocketMQ's header has 32 signed bits for them."""

OUR_LANGUAGE: Final = "PYTHON"
"""RocketMQ's brokers answer JAVA."""

WaiterT = TypeVar("WaiterT")

_Request = tuple[int, msgspec.Struct | dict[str, str] | None, bytes]
"""Code, fields and body."""


class RequestState(enum.Enum):
    """Where a request is. See the diagram above."""

    GATHERED = "gathered"
    SENT = "sent"


class Abandoned(msgspec.Struct, Generic[WaiterT], frozen=True):
    """A request that will get no answer, and whether a byte of it may have left."""

    waiter: WaiterT
    outcome_unknown: bool


class Session(Generic[WaiterT]):
    """One connection's requests in flight.

    A `waiter` is whatever the shell wants back with the answer. Requests are named by their opaque.
    """

    def __init__(
        self,
        serialize_type: SerializeType = SerializeType.JSON,
        signer: Signer | None = None,
    ) -> None:
        self._serialize_type = serialize_type
        self._signer = signer
        self._asked: int | None = None
        """The opaque of the question whether the broker knows seals, while it is open."""
        self._sign_in = 0
        self._held: dict[int, _Request] = {}
        """What waits for its answer."""
        self._refused: list[tuple[WaiterT, RemotingCommand]] = []
        self._frames = FrameBuffer()
        self._pending: dict[int, tuple[WaiterT, float]] = {}
        self._gathered: dict[int, bytes] = {}
        self._responses: list[bytes] = []
        self._next_opaque = 0
        self.requests: list[RemotingCommand] = []
        """What the peer has asked since somebody took it from here."""
        self.answered = False
        """True once the peer answered anything: it is alive and speaks our protocol."""

    def request(
        self,
        code: int,
        ext: msgspec.Struct | dict[str, str] | None,
        body: bytes,
        waiter: WaiterT,
        deadline: float,
    ) -> int:
        """Gather a request and return its opaque. `deadline` is on the clock of `expire`."""
        waits = self._signer is not None and self._signer.state is SignerState.ASKING
        if waits and self._asked is None:
            self._ask()
        opaque = self._new_opaque()
        if waits:
            self._held[opaque] = (code, ext, body)
        else:
            self._gathered[opaque] = self._frame(opaque, code, ext, body)
        self._pending[opaque] = (waiter, deadline)
        return opaque

    def _frame(
        self, opaque: int, code: int, ext: msgspec.Struct | dict[str, str] | None, body: bytes
    ) -> bytes:
        signer = self._signer
        if self._serialize_type is SerializeType.MSGPACK:
            frame = encode_msgpack_request(code, opaque, ext, body)
        else:
            command = RemotingCommand(
                code, opaque, ext=ext, body=body, serialize_type=self._serialize_type
            )
            if signer is not None and signer.state is SignerState.ROCKETMQ:
                command = signer.signed(command)
            frame = encode_frame(command)
        if signer is not None and signer.state is SignerState.SEALING:
            return signer.sealed(frame, opaque)
        return frame

    def _new_opaque(self) -> int:
        opaque = self._next_opaque
        while opaque in self._pending:
            opaque = (opaque + 1) % OPAQUE_COUNT
        self._next_opaque = (opaque + 1) % OPAQUE_COUNT
        return opaque

    def _ask(self) -> None:
        """Ask for a number. What is sealed later has higher opaques."""
        self._asked, self._sign_in = self._new_opaque(), self._new_opaque()
        command = RemotingCommand(RequestCode.NODE_CHALLENGE, self._asked)
        self._gathered[self._asked] = encode_frame(command)

    def _may_sign(self, answer: RemotingCommand) -> None:
        """Sign what has waited for this answer, or refuse it."""
        assert self._signer is not None, "who does not sign asks for no number"
        self._asked = None
        held, self._held = self._held, {}
        refusal = self._signer.answered(answer)
        if refusal is not None:
            for opaque in held:
                own = msgspec.structs.replace(refusal, opaque=opaque, flag=RESPONSE_FLAG)
                self._refused.append((self._pending.pop(opaque)[0], own))
            return
        if self._signer.state is SignerState.SEALING:
            self._serialize_type = SerializeType.MSGPACK
            self._gathered[self._sign_in] = self._signer.sign_in(self._sign_in)
        for opaque, (code, ext, body) in held.items():
            self._gathered[opaque] = self._frame(opaque, code, ext, body)

    @property
    def has_to_send(self) -> bool:
        """Whether `data_to_send` has something."""
        return bool(self._gathered or self._responses)

    def data_to_send(self) -> bytes:
        """Return the frames gathered since the last call. From now on they count as sent."""
        data = b"".join(self._gathered.values())
        self._gathered.clear()
        if self._responses:
            data += b"".join(self._responses)
            self._responses.clear()
        return data

    def respond(self, response: RemotingCommand) -> None:
        """Gather the answer to a request of the peer."""
        self._responses.append(encode_frame(response))

    def state_of(self, opaque: int) -> RequestState | None:
        """Return where the request is, None if it is over."""
        if opaque not in self._pending:
            return None
        is_here = opaque in self._gathered or opaque in self._held
        return RequestState.GATHERED if is_here else RequestState.SENT

    def receive_data(self, data: bytes) -> None:
        """Keep bytes from the peer. Call `next_answer` until it has no more."""
        self._frames.receive_data(data)

    def next_answer(self) -> tuple[WaiterT, RemotingCommand] | None:
        """Return the next answer and its waiter, or None: more bytes are needed.

        Requests of the peer are put into `requests`. Answers that nobody waits for are skipped.

        Raises:
            WireError: the peer broke the protocol. Close the connection.
        """
        if self._refused:
            return self._refused.pop(0)
        while (command := self._frames.next_command()) is not None:
            if not command.is_response:
                self.requests.append(command)
                continue
            if not self.answered:
                self._meet(command)
            if command.opaque == self._asked:
                self._may_sign(command)
                if self._refused:
                    return self._refused.pop(0)
                continue
            pending = self._pending.pop(command.opaque, None)
            if pending is not None:
                return pending[0], command
        return None

    def _meet(self, first_answer: RemotingCommand) -> None:
        self.answered = True
        # A signature of RocketMQ's is over the fields as text, and brokers take what is signed
        # together in JSON.
        if first_answer.language == OUR_LANGUAGE and self._signer is None:
            self._serialize_type = SerializeType.MSGPACK

    def forget(self, opaque: int) -> Abandoned[WaiterT] | None:
        """Stop waiting for one answer, and withdraw the request if it has not left."""
        pending = self._pending.pop(opaque, None)
        if pending is None:
            return None
        is_here = self._gathered.pop(opaque, None) or self._held.pop(opaque, None)
        return Abandoned(pending[0], outcome_unknown=is_here is None)

    def expire(self, now: float) -> list[Abandoned[WaiterT]]:
        """Forget every request whose deadline is `now` or earlier."""
        overdue = [opaque for opaque, (_, deadline) in self._pending.items() if deadline <= now]
        return [abandoned for opaque in overdue if (abandoned := self.forget(opaque)) is not None]

    def next_deadline(self) -> float:
        """Return the earliest deadline of all requests in flight, infinity if there are none."""
        return min((deadline for _, deadline in self._pending.values()), default=float("inf"))

    def connection_lost(self) -> list[Abandoned[WaiterT]]:
        """Forget all requests, in the order they were made."""
        return [
            abandoned
            for opaque in list(self._pending)
            if (abandoned := self.forget(opaque)) is not None
        ]
