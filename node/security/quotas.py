"""The bounds of users: what is asked of a request of a bounded user before its handler runs.

    guard --> who? may they? --> take --+--> handler
                                        +--> over a bound: nothing is done; answered later

Without a bound a request does not come here at all. What keeps a client what it is, its heartbeats,
offsets and locks, is taken always (`NOT_COUNTED`): much of it is one-way, and would be lost without
a word. A request over a bound is refused as RocketMQ's clients expect it:

    a pull         PULL_RETRY_IMMEDIATELY, and go on where you are: every consumer asks again
    anything else  SYSTEM_BUSY, which producers try again
    one-way        nobody hears of it

The answer comes when there may be room again (`node.remoting.user_share`). A connection for which
`REFUSED_MAX` of these answers wait is not read until some are given: so a flood costs the node no
more than that, and comes to an end at the client.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import math
from collections.abc import Container
from typing import Final

import trio

from node.remoting.caller import Caller
from node.remoting.connection import OWED_ANSWERS_MAX, Connection, Outbox, OwedAnswers
from node.remoting.dispatcher import Answer, Handler, response_to
from node.remoting.places import STILL_SECONDS
from node.remoting.user_share import DELAY_SECONDS_MAX, Bound, Over, Place, UserShare
from node.security.audit import Audit
from node.security.users import User
from store.machine.signal import Signal
from tandem.wire.remoting_command import ONEWAY_FLAG, RemotingCommand, encode_frame
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import PullMessageRequestHeader, PullMessageResponseHeader
from tandem.wire.response_code import ResponseCode
from tandem.wire.route import MASTER_ID
from tandem.wire.user_quota import UserQuota

_log = logging.getLogger(__name__)

REFUSED_MAX: Final = 1_024
"""Refusals of one connection that wait for their answer. Beyond it no request is read."""

_WEIGHT: Final = OWED_ANSWERS_MAX // REFUSED_MAX
"""Of a refusal among the answers owed by a connection."""

TICK_SECONDS: Final = 0.005
"""Between two looks at answers that are due: those between two are given by the second."""

NOT_COUNTED: Final = frozenset(
    {
        RequestCode.HEART_BEAT,
        RequestCode.UNREGISTER_CLIENT,
        RequestCode.CHECK_CLIENT_CONFIG,
        RequestCode.GET_CONSUMER_LIST_BY_GROUP,
        RequestCode.QUERY_ASSIGNMENT,
        RequestCode.LOCK_BATCH_MQ,
        RequestCode.UNLOCK_BATCH_MQ,
        RequestCode.QUERY_CONSUMER_OFFSET,
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.GET_MIN_OFFSET,
        RequestCode.GET_MAX_OFFSET,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
        RequestCode.END_TRANSACTION,
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
    }
)
"""Taken always: without it a client loses its place, its offsets, or the end of a transaction."""

SENDS: Final = frozenset(
    {
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE_V2,
    }
)
"""Their bodies are messages."""

PULLS: Final = frozenset({RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE})


class Quotas:
    """The shares of all users of one node, and the refusals that are not answered yet."""

    def __init__(self, defaults: UserQuota, node: str, audit: Audit | None = None) -> None:
        """Bound users by `defaults` where they have no bounds of their own."""
        self._defaults = defaults
        self._node = node
        self._audit = audit
        self._shares: dict[str, UserShare] = {}
        self._by_connection: dict[Connection, list[UserShare]] = {}
        self._late: list[tuple[float, int, OwedAnswers, bytes]] = []
        """Refusals by when they are to be answered, as a heap."""
        self._numbers = itertools.count()
        self._wake = Signal()

    def share_of(self, user: User) -> UserShare | None:
        """Return the share of a user as bounded now; None: nothing is bounded."""
        quota = user.quota.over(self._defaults)
        name = user.stored.name
        if user.is_super or not quota.has_bounds:
            return None
        share = self._shares.get(name)
        if share is None:
            share = self._shares[name] = UserShare(name)
        share.bound(quota)
        return share

    def refused(self, name: str) -> dict[str, int]:
        """Return how many requests of a user were refused, by words for the bound."""
        share = self._shares.get(name)
        return {} if share is None else {each.value: n for each, n in share.refused.items()}

    def forget_all_but(self, names: Container[str]) -> None:
        """There are no other users any more."""
        for name in [name for name in self._shares if name not in names]:
            del self._shares[name]

    def broker_begins(self) -> None:
        """Whatever waited for the answer of another one waits no more."""
        for share in self._shares.values():
            share.forget_in_flight()

    # -- requests --------------------------------------------------------------------------------

    def take(
        self, share: UserShare, handler: Handler, connection: Connection, command: RemotingCommand
    ) -> Answer | None:
        """Handle a request, or refuse it."""
        now = trio.current_time()
        counted = connection.counted_as or connection
        place = share.places.get(counted)
        if place is None and counted.is_closed:
            place = Place(share)  # what a client has left behind: it has no connection any more
        elif place is None and (place := self._enter(share, counted, now)) is None:
            connection.reading.cancel()
            over = Over(Bound.CONNECTIONS, len(share.places), DELAY_SECONDS_MAX)
            self._refuse(share, over, connection, command, now)
            return None
        if command.code in NOT_COUNTED:
            return handler(connection, command)
        size, key = 0, None
        if command.code in SENDS:
            size = len(command.body)
        over_one = share.over(now, size)
        if over_one is not None and size:
            key = _key_of(command)
            over_one = share.over(now, size, key)
        if over_one is not None:
            self._refuse(share, over_one, connection, command, now)
            return None
        share.take(now, 1, size, key)
        if size and share.counts_in_flight:
            connection.charge(place.begin(size))
        return handler(connection, command)

    def takes_runs(self, caller: Caller, connection: Connection) -> bool:
        """Whether requests of a caller that came together may be taken as one."""
        share = caller.share
        if share is None:
            return True
        return connection in share.places and share.over(trio.current_time(), 1) is None

    def connection_closed(self, connection: Connection) -> None:
        """A connection has ended."""
        for share in self._by_connection.pop(connection, ()):
            share.leave(connection)

    def _enter(self, share: UserShare, connection: Connection, now: float) -> Place | None:
        """Count a connection of a user, if need be instead of one that is still; else None."""
        if share.is_full:
            still = [
                each
                for each in share.places
                if each.last_active < now - STILL_SECONDS and not each.owed_count
            ]
            if not still:
                return None
            victim = min(still, key=_last_active)
            victim.close()
            share.leave(victim)
        self._by_connection.setdefault(connection, []).append(share)
        return share.enter(connection)

    # -- refusals --------------------------------------------------------------------------------

    def _refuse(
        self,
        share: UserShare,
        over: Over,
        connection: Connection,
        command: RemotingCommand,
        now: float,
    ) -> None:
        delay = share.refuse(now, over)
        why = f"user {share.name} is over its {over.most} {over.bound.value} at {self._node}"
        self._report(share, over.bound, connection, command, why, now)
        frame = b""
        if not command.flag & ONEWAY_FLAG:
            frame = encode_frame(_answer(command, why))
        at = math.ceil((now + delay) / TICK_SECONDS) * TICK_SECONDS
        late = (at, next(self._numbers), connection.owe(_WEIGHT), frame)
        heapq.heappush(self._late, late)
        if self._late[0] is late:
            self._wake.notify()

    def _report(
        self,
        share: UserShare,
        bound: Bound,
        connection: Connection,
        command: RemotingCommand,
        why: str,
        now: float,
    ) -> None:
        count = share.to_report(now, bound)
        if count is None:
            return
        _log.warning(
            "%s: %d requests were refused since the last such line, this one from %s;"
            " `tandem user quota %s` shows and sets its bounds",
            *(why, count, connection.peer, share.name),
        )
        if self._audit is not None:
            self._audit.over_bound(f"user {share.name}", connection, command, why, count)

    def answer_all(self) -> None:
        """Answer every refusal now, for this node takes its leave."""
        self._answer_until(math.inf)

    async def run(self) -> None:
        """Answer refusals when they are due, on all ports of the node, until cancelled."""
        while True:
            with trio.move_on_at(self._late[0][0] if self._late else math.inf):
                await self._wake.wait()
            self._answer_until(trio.current_time())
            await trio.lowlevel.checkpoint()

    def _answer_until(self, end: float) -> None:
        """Answer what is due, and send it."""
        outboxes: set[Outbox] = set()
        while self._late and self._late[0][0] <= end:
            _, _, owed, frame = heapq.heappop(self._late)
            owed.write(frame)
            outboxes.add(owed.outbox)
        for outbox in outboxes:
            outbox.flush()


def _answer(command: RemotingCommand, why: str) -> RemotingCommand:
    if command.code in PULLS:
        offset = command.decode_header(PullMessageRequestHeader).queue_offset
        header = PullMessageResponseHeader(MASTER_ID, offset, 0, 0)
        return response_to(command, ResponseCode.PULL_RETRY_IMMEDIATELY, why, ext=header)
    return response_to(
        command,
        ResponseCode.SYSTEM_BUSY,
        f"[QUOTA]{why}; send again. `tandem user quota` shows and sets its bounds",
    )


def _key_of(command: RemotingCommand) -> int:
    """Return what a send has in common with itself when it is sent again: all of the message.

    The properties of a message have its unique key, of which each try has the same.
    """
    fields = command.ext_fields()
    return hash((fields.get("i"), fields.get("properties"), command.body))


def _last_active(connection: Connection) -> float:
    return connection.last_active
