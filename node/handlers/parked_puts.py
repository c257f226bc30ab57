"""Puts that wait for the disk, for replicas, or both, before they are answered.

    park --> submit --> answer
      |        |          the disk, replicas, or both have it, or their time is up
      |        at the end of the round of requests
      while requests of one connection are handled

They are parked as answers and not as tasks; and all puts of a connection that came in one round
wait together, as one `ParkedRound`, until disk and replicas have reached the last of them. They
were written together, so they leave together, and the services count rounds instead of messages. A
run of several connections waits as one `ParkedRun`.

Source: RocketMQ 5.3.3, CommitLog.handleDiskFlushAndHA.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from typing import Final

import msgspec
import trio

from ha.results import PutWait
from node.errors import RequestError
from node.handlers.stored_answer import RunAnswers, encoded, with_outcome
from node.remoting.connection import Connection, OwedAnswers, give_each
from node.remoting.dispatcher import Answer
from node.tables.put_times import PutTimes
from store import PutMessageStatus
from tandem.wire.response_code import ResponseCode

PARKED_PUTS_MAX: Final = 100_000
"""Puts that wait for disk or replica, over all connections. Beyond it sends are refused."""

STATUS_CODES: Final = {
    PutMessageStatus.PUT_OK: ResponseCode.SUCCESS,
    PutMessageStatus.FLUSH_DISK_TIMEOUT: ResponseCode.FLUSH_DISK_TIMEOUT,
    PutMessageStatus.FLUSH_SLAVE_TIMEOUT: ResponseCode.FLUSH_SLAVE_TIMEOUT,
    PutMessageStatus.SLAVE_NOT_AVAILABLE: ResponseCode.SLAVE_NOT_AVAILABLE,
    PutMessageStatus.SERVICE_NOT_AVAILABLE: ResponseCode.SERVICE_NOT_AVAILABLE,
    PutMessageStatus.CREATE_MAPPED_FILE_FAILED: ResponseCode.SYSTEM_ERROR,
    PutMessageStatus.MESSAGE_ILLEGAL: ResponseCode.MESSAGE_ILLEGAL,
    PutMessageStatus.PROPERTIES_SIZE_EXCEEDED: ResponseCode.MESSAGE_ILLEGAL,
    PutMessageStatus.OS_PAGE_CACHE_BUSY: ResponseCode.SYSTEM_BUSY,
    PutMessageStatus.UNKNOWN_ERROR: ResponseCode.SYSTEM_ERROR,
    PutMessageStatus.IN_SYNC_REPLICAS_NOT_ENOUGH: ResponseCode.SYSTEM_ERROR,
    PutMessageStatus.PUT_TO_REMOTE_BROKER_FAIL: ResponseCode.SYSTEM_ERROR,
    PutMessageStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED: ResponseCode.SYSTEM_ERROR,
    PutMessageStatus.WHEEL_TIMER_FLOW_CONTROL: ResponseCode.SYSTEM_ERROR,
    PutMessageStatus.WHEEL_TIMER_MSG_ILLEGAL: ResponseCode.MESSAGE_ILLEGAL,
    PutMessageStatus.WHEEL_TIMER_NOT_ENABLE: ResponseCode.SYSTEM_ERROR,
}
"""Source: SendMessageProcessor.handlePutMessageResult."""

assert set(STATUS_CODES) == set(PutMessageStatus)

# Looking up a member of an enum costs 50 ns, and this is done for every message.
_PUT_OK: Final = PutMessageStatus.PUT_OK

_OK: Final = "send_ok"
_CONTRACTS: Final = {False: "replicated", True: "replicated_flushed"}
"""By whether a put waits for the disks of the replicas. See `Ack` of the clients."""


class WaitPolicy(msgspec.Struct, frozen=True):
    """For what a put with WAIT waits."""

    flush: PutWait | None = None
    """None under ASYNC_FLUSH."""

    replication: PutWait | None = None
    """None under ASYNC_MASTER."""


class ParkedPuts:
    """All of one node.

    Attributes:
        any_waits: Whether any put of this node waits for disks or replicas.
        room: How many more may wait.
    """

    def __init__(self, replicated: WaitPolicy, flushed: WaitPolicy, times: PutTimes) -> None:
        """Wait by `replicated`; by `flushed`, if a message asks for the disks of the replicas."""
        self._replicated = replicated
        self._flushed = flushed
        self._times = times
        self.any_waits = replicated != WaitPolicy()
        self.room = PARKED_PUTS_MAX
        self._rounds: dict[bool, ParkedRound] = {}
        """Of the connection whose requests are being handled: by whether they wait for disks."""

    @property
    def waiting_count(self) -> int:
        """How many puts wait."""
        return PARKED_PUTS_MAX - self.room

    def overloaded(self) -> RequestError:
        """The answer to a put that there is no room for."""
        count = PARKED_PUTS_MAX - self.room
        return RequestError(
            ResponseCode.SYSTEM_BUSY,
            f"[OVERLOAD]{count} puts wait for the disk or a replica; send again",
        )

    def park(
        self, connection: Connection, end_offset: int, response: Answer, *, for_disks: bool = False
    ) -> None:
        """Keep the answer until this round of requests ends, and then until it is true.

        With `for_disks` it waits for the disks of the replicas.
        """
        parked = self._round(connection, for_disks=for_disks)
        parked.add(end_offset, response)
        self.room -= 1

    def park_run(self, connection: Connection, answers: RunAnswers) -> None:
        """Keep the answers of a run until its last message is where the group wants it."""
        parked = self._round(connection, for_disks=False)
        parked.add(answers.record_ends[-1], answers, len(answers.record_ends))
        self.room -= len(answers.record_ends)

    def park_together(
        self, connections: list[Connection], counts: list[int], answers: RunAnswers
    ) -> None:
        """Have a run of several connections waited for; each is owed so many answers by now.

        No round is open: it is waited for at once.
        """
        assert not self._rounds
        self.room -= len(answers.record_ends)
        parked = ParkedRun(connections, counts, self._replicated, self._unpark, self._times)
        parked.add(answers.record_ends[-1], answers, len(answers.record_ends))
        parked.submit(trio.current_time())

    def _round(self, connection: Connection, *, for_disks: bool) -> ParkedRound:
        parked = self._rounds.get(for_disks)
        if parked is None:
            policy = self._flushed if for_disks else self._replicated
            contract = _CONTRACTS[for_disks]
            parked = ParkedRound([connection], policy, self._unpark, self._times, contract)
            self._rounds[for_disks] = parked
            if len(self._rounds) == 1:
                connection.at_round_end(self._submit)
        # A round is about one connection: nobody else's requests are handled before its end.
        assert parked.connections[0] is connection
        return parked

    def _submit(self) -> None:
        """Have the puts parked in this round waited for."""
        rounds, self._rounds = self._rounds, {}
        # Those for disks wait longest: what is in flight ends with them.
        for _, parked in sorted(rounds.items(), reverse=True):
            parked.owed = parked.connections[0].owe_puts(parked.count)
            parked.submit(trio.current_time())

    def _unpark(self, count: int, began: float) -> None:
        self.room += count
        self._times.waited(count, trio.current_time() - began)


class Parked:
    """Puts whose answers wait together for the disk, replicas, or both.

    Attributes:
        connections: Whose they are.
        count: How many there are. Each connection owes its answers before they are submitted.
    """

    def __init__(
        self,
        connections: list[Connection],
        policy: WaitPolicy,
        on_answered: Callable[[int, float], None],
        times: PutTimes,
        contract: str,
    ) -> None:
        """Wait by a policy; `on_answered` hears of how many puts, and since when they waited.

        In `times` it is counted as of `contract`, a word.
        """
        self.connections = connections
        self.count = 0
        self._times = times
        self._contract = contract
        self._puts: list[tuple[int, Answer | RunAnswers]] = []
        """End offset and answer of each, in the order of the log; a run of them may be one. All
        say that all is well until the outcome is known."""
        self._policy = policy
        self._on_answered = on_answered
        self._began = 0.0
        self._open_waits = 0
        self._flush_outcome = _PUT_OK
        self._flush_reason = ""
        self._replication_outcome = _PUT_OK
        self._replication_reason = ""

    def add(self, end_offset: int, answer: Answer | RunAnswers, count: int = 1) -> None:
        """Take in the next answer, or those of a run."""
        self._puts.append((end_offset, answer))
        self.count += count

    def submit(self, now: float) -> None:
        """Wait for disk and replicas side by side. May answer at once.

        Source: CommitLog.handleDiskFlushAndHA.
        """
        self._began = now
        end_offset = self._puts[-1][0]
        flush, replication = self._policy.flush, self._policy.replication
        self._open_waits = (flush is not None) + (replication is not None)
        if flush is not None:
            flush.submit(end_offset, now + flush.timeout_seconds, self._flushed)
        if replication is not None:
            replication.submit(end_offset, now + replication.timeout_seconds, self._replicated)

    def _give(self) -> None:
        """Write them."""
        raise NotImplementedError

    def _flushed(self, status: PutMessageStatus, reason: str) -> None:
        self._flush_outcome, self._flush_reason = status, reason
        self._times.flush.count(trio.current_time() - self._began, self.count)
        self._wait_ended()

    def _replicated(self, status: PutMessageStatus, reason: str) -> None:
        self._replication_outcome, self._replication_reason = status, reason
        self._times.replication.count(trio.current_time() - self._began, self.count)
        self._wait_ended()

    def _wait_ended(self) -> None:
        self._open_waits -= 1
        if self._open_waits:
            return
        if self._flush_outcome is not _PUT_OK or self._replication_outcome is not _PUT_OK:
            self._note_outcomes()
        else:
            self._times.acks[self._contract, _OK] += self.count
        self._give()
        self._on_answered(self.count, self._began)

    def _note_outcomes(self) -> None:
        """Another code for what disk or replicas have not reached; replicas have the last word."""
        policy, most_late, last = self._policy, 0, _OK
        for wait, status, reason in (
            (policy.flush, self._flush_outcome, self._flush_reason),
            (policy.replication, self._replication_outcome, self._replication_reason),
        ):
            if wait is None or status is _PUT_OK:
                continue
            reached, code = wait.reached(), STATUS_CODES[status]
            self._puts = [
                (end, answer) if end <= reached else (end, with_outcome(answer, code, reason))
                for end, answer in self._single()
            ]
            last = code.name.lower()
            late = sum(end > reached for end, _ in self._puts)
            most_late = max(most_late, late)
        acks = self._times.acks
        acks[self._contract, _OK] += self.count - most_late
        acks[self._contract, last] += most_late

    def _single(self) -> list[tuple[int, Answer]]:
        puts: list[tuple[int, Answer]] = []
        for end, answer in self._puts:
            puts += answer.single() if isinstance(answer, RunAnswers) else [(end, answer)]
        return puts


class ParkedRound(Parked):
    """Those of one connection that came in one round."""

    owed: OwedAnswers | None = None

    def _give(self) -> None:
        assert self.owed is not None, "waits end after they began"
        puts = self._puts
        if len(puts) == 1:
            self.owed.write(_frames(puts[0][1]))
        else:
            self.owed.write(b"".join([_frames(answer) for _, answer in puts]))


class ParkedRun(Parked):
    """One run of several connections, which nobody has a bound on."""

    def __init__(
        self,
        connections: list[Connection],
        counts: list[int],
        policy: WaitPolicy,
        on_answered: Callable[[int, float], None],
        times: PutTimes,
    ) -> None:
        super().__init__(connections, policy, on_answered, times, _CONTRACTS[False])
        self._counts = counts

    def _give(self) -> None:
        counts = self._counts
        answers = self._puts[0][1]
        if not isinstance(answers, RunAnswers):
            frames = [encoded(answer) for _, answer in self._single()]
            answers = RunAnswers(b"".join(frames), list(accumulate(map(len, frames))), [])
        give_each(self.connections, counts, answers.frames, answers.ends_of(counts))


def _frames(answer: Answer | RunAnswers) -> bytes:
    return answer.frames if isinstance(answer, RunAnswers) else encoded(answer)
