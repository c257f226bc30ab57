"""The one place where a request is attributed to somebody, and refused if they may not do it.

    request --> what does it do to what? --+--> anybody may: the handler itself, nothing is asked
              (its declaration)            +--> who is it? --+--> signed: NODE
                                                             +--> signed by a tool: OPERATOR
                                                             +--> RocketMQ's, admitted: ADMITTED
                                                             +--> else: STRANGER

A code that anybody may use goes to its handler directly, so messages pay nothing for this.

Signatures are described in `tandem.wire.request_signature`. The numbers they need are kept with the
connection, a few at most, and are unknown to strangers beforehand.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from node.errors import RequestError
from node.remoting.dispatcher import response_to
from node.security.access import Access, Action, Resource, Standing, needed
from node.security.admission import REGISTRATIONS, Admission, NotAdmittedError
from node.security.request import REQUESTS, handler_table, serves
from store.machine.tell_once import TellOnce
from tandem.wire.acl_signature import ACCESS_KEY_FIELD, is_signed_with
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import CreateTopicRequestHeader
from tandem.wire.request_signature import (
    CHALLENGE_FIELD,
    SIGNATURE_FIELD,
    TARGET_FIELD,
    ChallengeBody,
    is_rightly_signed,
)
from tandem.wire.response_code import ResponseCode
from tandem.wire.secret_keys import OPERATOR_ACCESS_KEY, Purpose, key_of, operator_secret_key
from tandem.wire.system_topics import is_system_topic

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from random import Random

    from node.remoting.connection import Connection
    from node.remoting.dispatcher import Answer, Handler, TakeRun
    from tandem.cluster_file.cluster_config import NodeConfig
    from tandem.wire.remoting_command import RemotingCommand

_log = logging.getLogger(__name__)

CHALLENGES_MAX: Final = 16
"""Of one connection; more make it forget the oldest."""

_CHALLENGE_BITS: Final = 128

_REMEDY: Final = (
    "it is taken only from those who know the secret of the cluster: give the cluster file with"
    " --config, on a machine and as a user that may read its secret file"
)

_TOOL_REMEDY: Final = (
    "it is taken only from those who know the secret of the cluster: `tandem cluster credentials`"
    " prints what RocketMQ's tools need, for conf/tools.yml; Python's clients take --config"
)


class Guard:
    """Asks of every request of one node who may send it.

    Raises, from guarded handlers:
        RequestError: NO_PERMISSION, with what is missing and what to do.
    """

    def __init__(self, config: NodeConfig, random: Random) -> None:
        """Guard a node. `config` has the secret; `random` makes numbers that do not come again."""
        cluster = config.cluster
        self._key = key_of(cluster.secret, Purpose.REQUEST)
        self._operator_key = operator_secret_key(cluster.secret)
        self._random = random
        self._target = config.node.broker_address
        self._name = config.node.name
        self._admission = Admission(cluster)
        self._names_of_the_system = frozenset({cluster.cluster.name, *cluster.groups})
        self._told: TellOnce[str] = TellOnce()

    def guarded(self, *families: object) -> dict[int, Handler]:
        """Return what these objects handle, with the question before what not everybody may use.

        The guard's own request is among them, for the sake of signatures.
        """
        return {
            code: self._guarded(REQUESTS[code].access, handler)
            for code, handler in handler_table(self, *families).items()
        }

    @staticmethod
    def runs(take: TakeRun | None, codes: Iterable[int]) -> TakeRun | None:
        """Return what takes requests of these codes together, if everybody may send them.

        Nobody is asked who sent a run. So a run has no request with a field that the loops in C do
        not know: such a field may be a signature, and its request comes to `_guarded`.
        """
        strangers = (needed(REQUESTS[code].access) is Standing.STRANGER for code in codes)
        return take if all(strangers) else None

    def _guarded(self, access: Access, handler: Handler) -> Handler:
        if access == (Resource.TOPICS, Action.WRITE):
            return partial(self._ask_for_topic, handler)
        if needed(access) is Standing.STRANGER:
            return handler
        return partial(self._ask, access, handler)

    def _ask_for_topic(
        self, handler: Handler, connection: Connection, command: RemotingCommand
    ) -> Answer | None:
        topic = command.decode_header(CreateTopicRequestHeader).topic
        if is_system_topic(topic) or topic in self._names_of_the_system:
            access = (Resource.SYSTEM_TOPICS, Action.WRITE)
            return self._ask(access, handler, connection, command)
        return handler(connection, command)

    def _ask(
        self, access: Access, handler: Handler, connection: Connection, command: RemotingCommand
    ) -> Answer | None:
        standing, command = self._attributed(connection, command)
        if standing < needed(access):
            resource, action = access
            remedy = _TOOL_REMEDY if needed(access) is Standing.OPERATOR else _REMEDY
            reason = f"this would {action.value} {resource.value} of {self._name}: {remedy}"
            raise self._refusal(connection, command, reason)
        return handler(connection, command)

    def _attributed(
        self, connection: Connection, command: RemotingCommand
    ) -> tuple[Standing, RemotingCommand]:
        """Say who sends a request, and what of it is theirs to say."""
        fields = command.ext_fields()
        if SIGNATURE_FIELD in fields:
            complaint = self._complaint(connection, command, fields)
            if complaint is not None:
                raise self._refusal(connection, command, complaint)
            return Standing.NODE, command
        if fields.get(ACCESS_KEY_FIELD) == OPERATOR_ACCESS_KEY:
            if not is_signed_with(self._operator_key, fields, command.body):
                reason = f"its Signature is not that of {OPERATOR_ACCESS_KEY}: {_TOOL_REMEDY}"
                raise self._refusal(connection, command, reason)
            return Standing.OPERATOR, command
        if command.code in REGISTRATIONS:
            try:
                own = self._admission.own_registration(command, connection.peer.ip)
            except NotAdmittedError as error:
                raise self._refusal(connection, command, str(error)) from error
            return Standing.ADMITTED, own
        return Standing.STRANGER, command

    def _complaint(
        self, connection: Connection, command: RemotingCommand, fields: Mapping[str, str]
    ) -> str | None:
        """Why a signature is not good, in words; None if it is. Its number is used up."""
        challenge = fields.get(CHALLENGE_FIELD, "")
        if challenge not in connection.challenges:
            return "its signature has a number that is used up or of another connection: sign again"
        connection.challenges.remove(challenge)
        if not is_rightly_signed(self._key, command.code, fields, command.body):
            return (
                f"its signature is wrong: {self._name} was started with another secret; all"
                " machines need the same secret file, see cluster.secret_file"
            )
        target = fields.get(TARGET_FIELD, "")
        if target != self._target:
            return f"it is signed for {target!r}, and this is {self._name} at {self._target}"
        return None

    def _refusal(
        self, connection: Connection, command: RemotingCommand, reason: str
    ) -> RequestError:
        if self._told.is_news(reason, about=(connection.peer.ip, command.code)):
            _log.warning("request %d of %s is refused: %s", command.code, connection.peer, reason)
        return RequestError(ResponseCode.NO_PERMISSION, f"no permission: {reason}")

    @serves(
        RequestCode.NODE_CHALLENGE,
        (Resource.CLIENTS, Action.READ),
    )
    def _challenge(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """NODE_CHALLENGE."""
        # With the key, so that nobody who has seen many of them knows the next.
        number = self._random.getrandbits(_CHALLENGE_BITS).to_bytes(_CHALLENGE_BITS // 8, "big")
        challenge = hmac.new(self._key, number, hashlib.sha256).hexdigest()[:32]
        connection.challenges.append(challenge)
        del connection.challenges[:-CHALLENGES_MAX]
        return response_to(command, body=msgspec.json.encode(ChallengeBody(challenge)))
