"""LOG_FINGERPRINTS, LOG_BYTES, LOG_DAMAGED: what nodes of a fenced group ask about their logs.

Answered to nodes alone, whatever the role, but not in quarantine: then nobody knows whose log is
right.
"""

from __future__ import annotations

import logging
from typing import Protocol

import msgspec

from ha.errors import NotServedError
from node.errors import RequestError
from node.remoting.connection import Connection
from node.remoting.dispatcher import response_to
from node.security.access import Action, Resource
from node.security.request import of_cluster, serves
from tandem.cluster_file.cluster_config import NodeConfig
from tandem.wire.access_control import Right
from tandem.wire.peer_log import LogRangeHeader, PeerLogPart
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.request_signature import CHALLENGE_FIELD, SIGNATURE_FIELD, answer_signature
from tandem.wire.response_code import ResponseCode
from tandem.wire.secret_keys import Purpose, key_of

_log = logging.getLogger(__name__)


class Served(Protocol):
    """The log of this node, for its peers: a `ServedLog`."""

    def part(self, start: int, end: int) -> PeerLogPart:
        """Return what is known of a part of it, or raise NotServedError."""

    def data(self, start: int, end: int, history: str = "") -> bytes:
        """Return a part of it, or raise NotServedError."""

    def doubted(self, start: int, end: int) -> None:
        """Look at a part of it, of which a peer says that it is bad."""


class Replica(Protocol):
    """What these requests need to know of a `FencedHAService`."""

    @property
    def served_log(self) -> Served:
        """Its log."""

    @property
    def is_quarantined(self) -> bool:
        """Whether this node takes no part."""

    def why_not_served(self) -> str:
        """Why it does not."""


class PeerLog:
    """Serves those requests for one round of a node.

    Raises, from its handlers:
        RequestError: it cannot give what is asked for; the text says why.
    """

    def __init__(self, config: NodeConfig, ha: Replica) -> None:
        self._ha = ha
        self._key = key_of(config.cluster.secret, Purpose.REQUEST)

    @serves(
        RequestCode.LOG_FINGERPRINTS,
        (Resource.LOG, Action.READ),
        of_cluster(Right.GET),
        header=LogRangeHeader,
    )
    def fingerprints(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """LOG_FINGERPRINTS: what is known of a part of the log."""
        asked = self._asked(command)
        try:
            part = self._ha.served_log.part(asked.start, asked.end)
        except NotServedError as error:
            raise RequestError(ResponseCode.INVALID_PARAMETER, str(error)) from error
        return self._signed(command, msgspec.json.encode(part))

    @serves(
        RequestCode.LOG_BYTES,
        (Resource.LOG, Action.READ),
        of_cluster(Right.GET),
        header=LogRangeHeader,
    )
    def data(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """LOG_BYTES: a part of the log."""
        asked = self._asked(command)
        try:
            data = self._ha.served_log.data(asked.start, asked.end, asked.history or "")
        except NotServedError as error:
            raise RequestError(ResponseCode.INVALID_PARAMETER, str(error)) from error
        return self._signed(command, data)

    @serves(
        RequestCode.LOG_DAMAGED,
        (Resource.LOG, Action.ORDER),
        of_cluster(Right.UPDATE),
        header=LogRangeHeader,
    )
    def damaged(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """LOG_DAMAGED: a peer says that a part of the log is bad."""
        asked = self._asked(command)
        _log.warning(
            "%s doubts this log from %d to %d: this node looks at it again",
            *(connection.peer, asked.start, asked.end),
        )
        self._ha.served_log.doubted(asked.start, asked.end)
        return response_to(command)

    def _asked(self, command: RemotingCommand) -> LogRangeHeader:
        if self._ha.is_quarantined:
            raise RequestError(ResponseCode.SERVICE_NOT_AVAILABLE, self._ha.why_not_served())
        return command.decode_header(LogRangeHeader)

    def _signed(self, command: RemotingCommand, body: bytes) -> RemotingCommand:
        challenge = command.ext_fields().get(CHALLENGE_FIELD, "")
        signature = answer_signature(self._key, command.code, challenge, body)
        return response_to(command, ext={SIGNATURE_FIELD: signature}, body=body)
