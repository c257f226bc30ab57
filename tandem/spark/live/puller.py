"""Reads the ranges of one task from a broker: one connection, many pulls in flight, no threads.

Whatever passes is waited for and tried again, at the same offsets: a master that is lost, a broker
that refuses for now, a node that lags. Messages handed on are never asked for again, so that a
change of master makes neither a gap nor a repeat. After `retry_ms` without any progress the last
trouble is raised.

What is lost for good, a master alone says: messages that it has deleted, a queue that ends earlier
than it did. A message that is damaged is asked for at the other nodes, and is lost if none has it
for as long as healing takes. With `failOnDataLoss` that is an error; else it is logged, and the
range is shorter.

A node of a fenced group gives out what is confirmed and nothing else, so every one of them has the
same at an offset. The nodes of a classic group have the same as long as its master is not replaced
by an operator with a node that lacks some of it.
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from tandem.client.backoff import retry_pause_seconds
from tandem.client.blocking_shell import CONNECT_TIMEOUT_SECONDS, open_connection
from tandem.client.core import ClientCore
from tandem.client.errors import (
    BrokerError,
    ClientError,
    ConnectionCause,
    ConnectionLostError,
    MessageDamagedError,
    RouteCause,
    RouteNotFoundError,
)
from tandem.client.lost_connection import cause_of, reason_of
from tandem.client.name_servers import REQUEST_TIMEOUT_SECONDS
from tandem.client.plain_socket import SocketOpener, open_socket
from tandem.client.queue_flow import RETRIED
from tandem.spark.errors import LossCause, SparkSourceError
from tandem.spark.live.data_loss import DataLoss, log_losses, report_loss
from tandem.spark.live.kept import Connections
from tandem.spark.live.link import Link
from tandem.spark.live.pull_answer import Meaning, Verdict, judge
from tandem.spark.live.pull_window import Piece, Pull, PullWindow
from tandem.spark.live.ranges import QueueRange
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_headers import PULL_FLAG_SUBSCRIPTION, PullMessageRequestHeader
from tandem.wire.response_code import ResponseCode
from tandem.wire.route import MASTER_ID

GONE_SECONDS: Final = 15.0
"""How long a master may say that it lacks a topic, a queue or its end before that is believed:
longer than a switch (as `tandem.client.pull_flow.BEYOND_END_SECONDS`)."""

MASTER_ONLY_SECONDS: Final = 2.0
"""How long another node is left alone that had less than was asked for."""

_GONE_WITH_TOPIC: Final = frozenset(
    {ResponseCode.TOPIC_NOT_EXIST.value, ResponseCode.INVALID_PARAMETER.value}
)

_log = logging.getLogger(__name__)


class RangePuller:
    """The reading of one task's ranges, all at brokers of one name.

    Args:
        core: the reader's client, and the routes.
        group: the consumer group that brokers see.
        ranges: what to read.
        from_slave: whether other nodes than the master are asked first.
        fail_on_data_loss: whether what is lost is an error.
        retry_seconds: how long to go on without progress.
        opener: opens connections.
        connections: what is there already of an earlier task, and is kept for the next; default:
            none, and all are closed at the end.
        sleep: waits some seconds.
    """

    def __init__(
        self,
        core: ClientCore,
        group: str,
        ranges: Sequence[QueueRange],
        *,
        from_slave: bool = False,
        fail_on_data_loss: bool = True,
        retry_seconds: float = 60.0,
        opener: SocketOpener = open_socket,
        connections: Connections | None = None,
        sleep: Callable[[float], None] = time.sleep,  # noqa: TID251 - plain code, no trio here
    ) -> None:
        self._core = core
        self._connections = connections or Connections(core, opener)
        self._are_kept = connections is not None
        self._shell = self._connections.shell
        self._group = group
        self._from_slave = from_slave
        self._fail_on_data_loss = fail_on_data_loss
        self._retry_seconds = retry_seconds
        self._open_socket = opener
        self._sleep = sleep
        self.ranges = ranges
        self._window = PullWindow(ranges)
        self._progress_at = core.clock()
        self._failures_in_a_row = 0
        self._master_only_until = 0.0
        self._gone_since: dict[int, float] = {}
        self._no_topic_since: float | None = None
        self._old_routes = dict(core.routes)
        """Those of an earlier task: who was master then may be another node by now."""
        self._damaged_since: dict[tuple[int, int], float] = {}
        self._avoided_until: dict[str, float] = {}
        """Nodes that have just said that a message is damaged there."""
        self.losses: list[DataLoss] = []
        """What was not there any more, if that is no error."""

    def pieces(self) -> Iterator[list[Piece]]:
        """Yield the records of all ranges, in order, some pulls at a time.

        Raises:
            SparkSourceError: no broker gives them in time, or refuses for good.
            DataLossError: some are lost.
        """
        try:
            while not self._window.is_done:
                trouble: ClientError | None = None
                try:
                    address, is_master = self._address()
                    link = self._link(address, is_master=is_master)
                    is_over = False
                    try:
                        yield from self._follow(link)
                        is_over = True
                    finally:
                        if is_over and self._are_kept:
                            self._connections.keep(link)
                        else:
                            link.close()
                except ClientError as error:
                    trouble = error
                if trouble is not None:
                    self._wait_or_raise(trouble)
                    if pieces := self._lose_topic(trouble):
                        yield pieces
        finally:
            if not self._are_kept:
                self._connections.close()
            log_losses(self.losses)

    # --- whom to ask -----------------------------------------------------------------------------

    @property
    def _queue_range(self) -> QueueRange:
        """One of the ranges that are not read yet. All are at the same broker name."""
        return self._window.unread

    def _address(self) -> tuple[str, bool]:
        """Return the broker to ask now, and whether it is the master.

        Raises:
            ClientError: there is none.
        """
        queue = self._queue_range.queue
        now = self._core.clock()
        deadline = now + REQUEST_TIMEOUT_SECONDS
        route = self._shell.run(self._core.route(queue.topic, deadline))
        nodes = route.addresses(queue.broker_name)
        master = nodes.pop(MASTER_ID, "")
        others = list(nodes.values())
        if now < self._master_only_until and self._avoided_until.get(master, 0.0) <= now and master:
            return master, True
        in_turn = [*others, master] if self._from_slave else [master, *others]
        known = [address for address in in_turn if address]
        if not known:
            self._core.suspect_route(queue.topic)
            reason = f"no address of broker {queue.broker_name!r} is registered"
            raise RouteNotFoundError(queue.topic, RouteCause.NO_BROKER, reason, may_pass=True)
        avoided, until = self._core.backoff.is_to_be_avoided, self._avoided_until
        best = min(known, key=lambda each: (avoided(each, now), until.get(each, 0.0) > now))
        return best, best == master

    def _link(self, address: str, *, is_master: bool) -> Link:
        kept = self._connections.take(address)
        if kept is not None:
            kept.is_master = is_master
            return kept
        try:
            opened = open_connection(
                self._core, self._open_socket, address, CONNECT_TIMEOUT_SECONDS
            )
        except (OSError, ValueError) as error:
            # ValueError: a route can hold an address that is none.
            now = self._core.clock()
            self._core.backoff.failed(address, now)
            if isinstance(error, TimeoutError):
                self._core.backoff.fell_silent(address, now)
            cause = cause_of(error, ConnectionCause.UNREACHABLE)
            reason = reason_of(error)
            raise ConnectionLostError(address, cause, reason, outcome_unknown=False) from error
        return Link(address, opened, self._core, is_master=is_master)

    # --- asking ----------------------------------------------------------------------------------

    def _follow(self, link: Link) -> Iterator[list[Piece]]:
        """Pull over one connection until everything is read, or something has to be waited for.

        Raises:
            ClientError: what ended it. All its pulls are to be sent again then.
        """
        window = self._window
        trouble: ClientError | None = None
        try:
            while not window.is_done and (trouble is None or window.in_flight):
                if trouble is None:
                    for pull in window.next_pulls():
                        link.request(self._header(pull), pull)
                for pull, answer in link.exchange():
                    trouble = self._heard(link, pull, answer) or trouble
                if pieces := window.ready():
                    yield pieces
        finally:
            for pull in link.unanswered():
                window.again(pull)
        if trouble is not None:
            raise trouble

    def _header(self, pull: Pull) -> PullMessageRequestHeader:
        queue = self._window.ranges[pull.place].queue
        return PullMessageRequestHeader(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=pull.start,
            max_msg_nums=pull.count,
            sys_flag=PULL_FLAG_SUBSCRIPTION,
            commit_offset=0,
            suspend_timeout_millis=0,
            sub_version=0,
            subscription="*",
            expression_type="TAG",
            broker_name=queue.broker_name,
        )

    def _heard(self, link: Link, pull: Pull, answer: RemotingCommand) -> ClientError | None:
        """Take the answer to a pull. Returned is what has to be waited for."""
        window = self._window
        try:
            verdict = judge(answer, pull, link.address)
        except BrokerError as error:
            return self._refused(link, pull, error)
        except ClientError as error:
            window.again(pull)
            return error
        if verdict.meaning is Meaning.FOUND:
            window.found(pull, verdict.next_offset, answer.body)
            self._gone_since.pop(pull.place, None)
            self._progress()
            return None
        if not link.is_master:
            self._master_only_until = self._core.clock() + MASTER_ONLY_SECONDS
        elif verdict.meaning is Meaning.GONE and not self._is_route_old(pull):
            reason = "deleted, or damaged and passed over"
            self._lose(pull, verdict.next_offset, reason, LossCause.DELETED)
            return None
        elif verdict.meaning is Meaning.BEYOND and self._is_gone(pull):
            reason = f"the queue ends at {verdict.max_offset} now"
            self._lose(pull, pull.end, reason, LossCause.CUT)
            return None
        window.again(pull)
        return self._nothing_yet(link, pull, verdict)

    def _refused(self, link: Link, pull: Pull, error: BrokerError) -> ClientError | None:
        passes = error.code in RETRIED
        if isinstance(error, MessageDamagedError):
            return self._damaged(link, pull, error)
        if error.code in _GONE_WITH_TOPIC and link.is_master and self._is_gone(pull):
            self._lose(pull, pull.end, error.remark, LossCause.GONE)
            return None
        self._window.again(pull)
        if passes or error.code in _GONE_WITH_TOPIC:
            return error
        raise SparkSourceError(f"source tandem: {error}") from error

    def _damaged(self, link: Link, pull: Pull, error: MessageDamagedError) -> ClientError | None:
        """Ask another node; a message that no node has whole for long enough is lost."""
        now = self._core.clock()
        self._avoided_until[link.address] = now + MASTER_ONLY_SECONDS
        at = pull.place, pull.start
        if now - self._damaged_since.setdefault(at, now) >= GONE_SECONDS:
            end = max(pull.start, error.queue_offset) + 1
            self._lose(pull, end, error.remark, LossCause.DAMAGED)
            return None
        self._window.again(pull)
        return error

    def _nothing_yet(self, link: Link, pull: Pull, verdict: Verdict) -> ClientError:
        queue = self._window.ranges[pull.place].queue
        reason = (
            f"{link.address} has offsets {verdict.min_offset} to {verdict.max_offset} of queue"
            f" {queue.queue_id} of topic {queue.topic!r}, and does not give out {pull.start}"
        )
        cause = ConnectionCause.CLOSED
        return ConnectionLostError(link.address, cause, reason, outcome_unknown=False)

    # --- what is lost, and what is waited for ----------------------------------------------------

    def _is_gone(self, pull: Pull) -> bool:
        now = self._core.clock()
        return now - self._gone_since.setdefault(pull.place, now) >= GONE_SECONDS

    def _is_route_old(self, pull: Pull) -> bool:
        topic = self._window.ranges[pull.place].queue.topic
        old = self._old_routes.get(topic)
        return old is not None and self._core.routes.get(topic) is old

    def _lose(self, pull: Pull, next_offset: int, reason: str, cause: LossCause) -> None:
        end = min(next_offset, pull.end)
        queue = self._window.ranges[pull.place].queue
        loss = DataLoss(queue, pull.start, end, reason, cause)
        if self._fail_on_data_loss:
            report_loss(loss, fail=True)
        self.losses.append(loss)
        self._window.passed(pull, end)
        self._progress()

    def _lose_topic(self, error: ClientError) -> list[Piece]:
        """Give up a topic of which name servers have said for long enough that there is none.

        Returned is what can be handed on after that.

        Raises:
            DataLossError: that is an error.
        """
        if not isinstance(error, RouteNotFoundError) or error.cause is not RouteCause.NO_TOPIC:
            self._no_topic_since = None
            return []
        now = self._core.clock()
        if self._no_topic_since is None:
            self._no_topic_since = now
        if now - self._no_topic_since < GONE_SECONDS:
            return []
        topic = self._queue_range.queue.topic
        ranges = enumerate(self._window.ranges)
        for pull in self._window.pulls_of(
            {place for place, each in ranges if each.queue.topic == topic}
        ):
            self._lose(pull, pull.end, str(error), LossCause.GONE)
        return self._window.ready()

    def _progress(self) -> None:
        self._progress_at = self._core.clock()
        self._failures_in_a_row = 0

    def _wait_or_raise(self, error: ClientError) -> None:
        queue = self._queue_range.queue
        self._core.suspect_route(queue.topic)
        waited = self._core.clock() - self._progress_at
        if waited >= self._retry_seconds:
            raise SparkSourceError(
                f"source tandem: no progress for {waited:.0f} s (option retryTimeoutMs) in queue"
                f" {queue.queue_id} of topic {queue.topic!r} at {queue.broker_name}: {error}"
            ) from error
        self._sleep(retry_pause_seconds(self._failures_in_a_row))
        self._failures_in_a_row += 1
