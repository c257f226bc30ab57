"""By which way a request of a call reaches the broker that has to answer it.

    the broker of this node, while it is master and takes puts  -->  its own handlers
    any other                                                   -->  a link to its master

A link waits for a master that takes puts, as long as the call has time; see `links`.

Who may ask is asked here in both cases: the link is this node's own, and its word is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, Protocol

import msgspec
import trio

from node.remoting.caller import Caller
from node.remoting.connection import Connection
from node.remoting.dispatcher import Dispatch, Dispatcher, Handler
from tandem.wire.access_control import Kind, Right
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import (
    ConsumerSendMsgBackRequestHeader,
    EndTransactionRequestHeader,
)

PASSED_ON: Final = (
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.END_TRANSACTION,
    RequestCode.RECALL_MESSAGE,
    RequestCode.POP_MESSAGE,
    RequestCode.ACK_MESSAGE,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
    RequestCode.CONSUMER_SEND_MSG_BACK,
    RequestCode.HEART_BEAT,
    RequestCode.UNREGISTER_CLIENT,
)
"""What a link carries for clients."""

WAIT_SECONDS: Final = 30.0
"""For an answer, where a call has no deadline."""

RESERVE_SECONDS: Final = 0.3
"""Before a call's deadline its client has to have an answer."""


class AsksMasters(Protocol):
    """Asks the master of a broker name; see `links.Links`."""

    def ask(
        self,
        broker_name: str,
        command: RemotingCommand,
        deadline: float,
        done: Callable[[RemotingCommand], None],
    ) -> None:
        """Have `done` called once, with the answer, or with what was the trouble at `deadline`."""


class Ways:
    """The ways from one node.

    Attributes:
        knows: Whether there is a broker name.
    """

    def __init__(
        self,
        own_broker_name: str,
        local: Callable[[], Dispatch],
        takes_puts: Callable[[], bool],
        guarded: Callable[[Mapping[int, Handler]], dict[int, Handler]],
        links: AsksMasters,
        knows: Callable[[str], bool],
    ) -> None:
        """Take what there is.

        `guarded` puts the question of who may ask before handlers; `knows` says whether there is a
        broker name.
        """
        self._local = local
        self.knows = knows
        self._own_broker_name = own_broker_name
        self._takes_puts = takes_puts
        self._guarded = guarded
        self._links = links
        self._others: dict[str, Dispatcher] = {}
        self._deadline = 0.0

    @property
    def local(self) -> Dispatch:
        """What this node answers by itself, whether it is master or not."""
        return self._local()

    def to(self, broker_name: str, call_deadline: float | None = None) -> Dispatch:
        """Return the way to a broker that is known to the name server beside us.

        It is to be gone at once: the deadline is that of the next request.
        """
        if broker_name == self._own_broker_name and self._takes_puts():
            return self.local
        now = trio.current_time()
        end = now + WAIT_SECONDS if call_deadline is None else call_deadline - RESERVE_SECONDS
        self._deadline = min(end, now + WAIT_SECONDS)
        way = self._others.get(broker_name)
        if way is None:
            pass_on = partial(self._pass_on, broker_name)
            way = Dispatcher(self._guarded(dict.fromkeys(PASSED_ON, pass_on)))
            self._others[broker_name] = way
        return way

    @staticmethod
    def _check_found(caller: Caller, command: RemotingCommand) -> None:
        """Ask for what a handler asks when it has found a record: there it is asked of this node.

        Raises:
            RequestError: the caller has no right to the topic that the record has to be of.
        """
        if isinstance(command.ext, EndTransactionRequestHeader):
            caller.check(Kind.TOPIC, command.ext.only_topic or "", Right.PUB)
        elif isinstance(command.ext, ConsumerSendMsgBackRequestHeader):
            caller.check(Kind.TOPIC, command.ext.only_topic or "", Right.SUB)

    def _pass_on(self, broker_name: str, connection: Connection, command: RemotingCommand) -> None:
        self._check_found(connection.caller, command)
        owed = connection.owe()

        def done(answer: RemotingCommand) -> None:
            owed.respond(command, msgspec.structs.replace(answer, opaque=command.opaque))

        self._links.ask(broker_name, command, self._deadline, done)
