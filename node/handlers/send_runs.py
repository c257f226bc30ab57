"""Requests to send that came together: taken from their connection as one run.

    find --> queues known? --> put --+--> answers        WAIT=false, or nobody to wait for
                  |             |    +--> park
                  +-- cut ------+--> one by one, by SendMessage

Most messages of a busy producer are usual: found, stored and answered by `SendRuns`, in C. A run is
one step, as a batch is: this node's right to take puts is asked for once, and nothing happens
between its messages. Whatever is in doubt is not decided here: the run ends before it, and
`SendMessage` handles the request.

Requests of several connections are one run where nobody is asked who sends them.

One request that has come alone is quicker on its own. And looking for a run in vain costs little,
but for each request it would be felt. So the next look is after one request more than the last
time, then after two more, four more, up to a bound.
"""

from __future__ import annotations

from functools import partial
from itertools import compress
from operator import attrgetter
from typing import TYPE_CHECKING, Final

import trio

from node.errors import RequestError
from node.handlers.stored_answer import RunAnswers, answer_parts
from node.remoting.caller import ANYBODY
from node.remoting.connection import give_each, owe_each
from node.tables.topic_attributes import is_compacted
from node.tables.topic_config_table import NOT_ALLOWED_SEND_TOPICS
from store.log.log_end import TORN_BYTES_MIN
from tandem.wire import native
from tandem.wire.access_control import Kind, Right
from tandem.wire.request_code import RequestCode
from tandem.wire.send_run import HOST_V4_BYTES, SendRuns

if TYPE_CHECKING:
    from ha.replication import Replication
    from node.handlers.send_message import SendMessage
    from node.remoting.caller import Caller
    from node.remoting.connection import Connection
    from node.remoting.gathering import Part
    from node.security.seals import Sender, SenderOf
    from node.tables.tables import Tables
    from store import MessageStore
    from store.queue.consume_queue import ConsumeQueue
    from tandem.wire.frame_buffer import FrameBuffer
    from tandem.wire.message import Host
    from tandem.wire.read_together import ReadTogether
    from tandem.wire.send_run import SendPlace, WrittenRun

ONE_BY_ONE_MAX: Final = 64
"""Requests that are handled one by one before the next look for a run, at most."""


SEND_RUN_CODES: Final = (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2)
"""Of the requests that a run may have; as in `native_send_headers.c`."""


# Loops without a step of Python for each.
_connection_of: Final = attrgetter("connection")
_misses_of: Final = attrgetter("misses")


class SendRunHandler:
    """Takes the runs of one broker, for all its connections."""

    def __init__(
        self,
        store: MessageStore,
        tables: Tables,
        replication: Replication,
        send: SendMessage,
        runs: SendRuns | None,
        sender_of: SenderOf | None = None,
    ) -> None:
        """Take runs with `runs`; without it `take` is None.

        `sender_of` says who has signed a run; without it nobody is asked.
        """
        self._sender_of = sender_of
        self._puts = store.puts
        self._topics = tables.topics
        self._refusal = replication.refusal
        self._parked = send.parked
        self.take = None if runs is None else partial(self._take, runs)
        """Puts and answers usual requests that come next; returns whether there were any."""
        self.take_together = None if runs is None else partial(self._take_together, runs)
        """The same with what has come on several connections, where nobody is asked who sends."""

    def _take(self, runs: SendRuns, connection: Connection, frames: FrameBuffer) -> bool:
        if (received := frames.several_frames()) is None:
            return False
        if connection.one_by_one:
            connection.one_by_one -= 1
            return False
        if not runs.find(*received):
            connection.misses = min(2 * connection.misses + 1, ONE_BY_ONE_MAX)
            connection.one_by_one = connection.misses
            return False
        connection.misses = 0
        found = runs.count
        written = None
        caller: Caller | None = ANYBODY
        sender: Sender | None = None
        if self._sender_of is not None:
            sender = self._sender(runs, connection, self._sender_of)
            caller = None if sender is None else sender.caller
        if caller is not None and self._refusal() is None and found <= self._parked.room:
            places, queues = self._places(runs, caller)
            if places:
                written = self._puts.put_run(runs, places, queues, connection.born_host)
        if written is None:
            # No request is looked at more than twice: these are now handled one by one.
            connection.one_by_one = found - 1
            return False
        if sender is not None:
            self._taken(runs, connection, sender)
        connection.one_by_one = found - runs.count
        frames.skip_to(runs.end)
        if not (runs.is_waiting and self._parked.any_waits):
            connection.write(written.answers)
            return True
        ends = written.answer_ends.tolist(), written.record_ends.tolist()
        self._parked.park_run(connection, RunAnswers(written.answers, *ends))
        return True

    def _take_together(self, runs: SendRuns, parts: list[Part], came: ReadTogether) -> bool:
        if self._sender_of is not None or self._refusal() is not None:
            return False
        hosts = b"".join([part.connection.born_host for part in parts])
        is_some = False
        while self._take_some(runs, parts, came, hosts):
            is_some = True
            if not runs.is_full:
                break
        return is_some

    def _take_some(
        self, runs: SendRuns, parts: list[Part], came: ReadTogether, hosts: bytes
    ) -> bool:
        """Take one run of several connections."""
        if not runs.find_of(came, hosts):
            return False
        places = runs.places()
        found = [self._queue(place, ANYBODY) for place in places]
        queues = [queue for queue in found if queue is not None]
        if len(queues) < len(places):
            # One client with other topics must not part the others.
            odd = runs.parts_with([n for n, queue in enumerate(found) if queue is None])
            for number in odd:
                parts[number].note_odd()
            if not runs.find_of(came, hosts, but=odd):
                return False
            places, queues = self._places(runs, ANYBODY)
        parked = self._parked
        if runs.count > parked.room:
            return False
        host = hosts[:HOST_V4_BYTES]
        written = self._puts.put_run(runs, places, queues, host) if places else None
        if written is None:
            return False
        self._answer_each(runs, written, parts)
        return True

    def _answer_each(self, runs: SendRuns, written: WrittenRun, parts: list[Part]) -> None:
        """Answer a run of several connections, now or when it is where the group wants it."""
        counts = runs.share()
        if 0 in counts:
            parts = list(compress(parts, counts))
            counts = list(filter(None, counts))
        if any(map(_misses_of, parts)):
            for part in parts:
                part.misses = 0
        connections = list(map(_connection_of, parts))
        ends = written.answer_ends.tolist(), written.record_ends.tolist()
        answers = RunAnswers(written.answers, *ends)
        owe_each(connections, counts)
        parked = self._parked
        if runs.is_waiting and parked.any_waits:
            parked.park_together(connections, counts, answers)
        else:
            give_each(connections, counts, answers.frames, answers.ends_of(counts))

    @staticmethod
    def _sender(runs: SendRuns, connection: Connection, sender_of: SenderOf) -> Sender | None:
        """Return who sends the run, which is cut before a request that they have not signed.

        None: nobody has, or nobody may: the guard says so of the first request.
        """
        sender = sender_of(connection, runs.access_key)
        if sender is None:
            return None
        signed = sender.count(runs)
        if signed < runs.count:
            if not signed:
                return None
            runs.keep(signed)
        share = sender.caller.share
        if share is not None:
            room = share.room(trio.current_time(), runs.body_sizes())
            if not room:
                return None
            if room < runs.count:
                runs.keep(room)
        connection.caller = sender.caller
        return sender

    @staticmethod
    def _taken(runs: SendRuns, connection: Connection, sender: Sender) -> None:
        """Note that a run is stored: its numbers, and what it takes of its user's share."""
        sender.taken(runs)
        share = sender.caller.share
        if share is None:
            return
        size = sum(runs.body_sizes())
        share.take(trio.current_time(), runs.count, size)
        if share.counts_in_flight:
            connection.charge(share.places[connection].begin(size))

    def _places(self, runs: SendRuns, caller: Caller) -> tuple[list[SendPlace], list[ConsumeQueue]]:
        """Return the places of the run and their queues, up to the first one that is not plain.

        One that the caller may not write to is not.
        """
        places = runs.places()
        queues: list[ConsumeQueue] = []
        for place in places:
            queue = self._queue(place, caller)
            if queue is None:
                runs.keep(place.first)
                return runs.places(), queues
            queues.append(queue)
        return places, queues

    def _queue(self, place: SendPlace, caller: Caller) -> ConsumeQueue | None:
        """Return the queue of a place that is plain."""
        config = self._topics.get(place.topic)
        queue = self._puts.run_queue(place.topic, place.queue_id)
        if (
            config is None
            or queue is None
            or place.topic in NOT_ALLOWED_SEND_TOPICS
            or (config.attributes and is_compacted(config.attributes))
            or not (caller is ANYBODY or may(caller, place.topic))
            or place.queue_id >= max(config.write_queue_nums, config.read_queue_nums)
        ):
            return None
        return queue


def may(caller: Caller, topic: str) -> bool:
    """Whether a caller may send to a topic."""
    try:
        caller.check(Kind.TOPIC, topic, Right.PUB)
    except RequestError:
        return False
    return True


def send_runs(
    store: MessageStore, *, suffix: bytes, host: Host, are_signed: bool = False
) -> SendRuns | None:
    """Return what finds and writes the runs of a broker; None if it takes none.

    `suffix` is what its messages get as further properties, `host` the broker's. With `are_signed`
    requests of a run are signed, all by one sender.
    """
    if native.loops is None or not store.puts.takes_runs:
        return None
    return SendRuns(
        native.loops,
        suffix=suffix,
        answers=answer_parts(host),
        store_host=host,
        body_bytes_max=store.puts.run_body_bytes_max,
        text_bytes_max=TORN_BYTES_MIN - 1,
        are_signed=are_signed,
    )
