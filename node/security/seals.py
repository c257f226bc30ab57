"""Signatures that are good once: those of nodes, and the seals of our own clients.

`Seals` answers the two requests that they begin with, and says what is wrong with one. What is to
be done about it, the guard knows. See `tandem.wire.request_signature` and `tandem.wire.frame_seal`.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Mapping
from random import Random
from typing import Final, NamedTuple, Protocol, TypeAlias

import msgspec

from node.errors import RequestError
from node.remoting.caller import Caller
from node.remoting.connection import Connection
from node.remoting.dispatcher import response_to
from node.security.access import Action, Resource
from node.security.request import serves
from tandem.cluster_file.cluster_config import NodeConfig
from tandem.wire.acl_signature import AclKey
from tandem.wire.frame_seal import (
    SEAL_BYTES,
    SIGN_IN_BYTES_MAX,
    FrameSeal,
    SealingPeer,
    SignInHeader,
    connection_key,
)
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.request_signature import (
    CHALLENGE_FIELD,
    TARGET_FIELD,
    ChallengeBody,
    is_rightly_signed,
)
from tandem.wire.response_code import ResponseCode
from tandem.wire.sealed_secret import SealError
from tandem.wire.secret_keys import OPERATOR_ACCESS_KEY, Purpose, key_of
from tandem.wire.send_run import SendRuns

CHALLENGES_MAX: Final = 16
"""Of one connection; more make it forget the oldest."""

_CHALLENGE_BITS: Final = 128


class Signer(Protocol):
    """Whose secret seals are made with."""

    @property
    def secret_mark(self) -> str:
        """What the secret is known by: another one has another mark. It is no secret."""

    def seal_key(self, challenge: str, target: str) -> bytes:
        """Return the key of a connection. Raises SealError: the secret cannot be opened."""


class Operator:
    """The operator, who signs with a key that is made of the cluster's secret."""

    secret_mark = "operator"

    def __init__(self, secret_key: str) -> None:
        self._secret_key = secret_key

    def seal_key(self, challenge: str, target: str) -> bytes:
        """See `Signer`."""
        return connection_key(self._secret_key, OPERATOR_ACCESS_KEY, challenge, target)


class Sender(NamedTuple):
    """Who has signed requests that came together."""

    caller: Caller
    key: AclKey | FrameSeal

    def count(self, runs: SendRuns) -> int:
        """Return how many of a run, from the first on, are signed by them."""
        if isinstance(self.key, FrameSeal):
            return runs.sealed_count(self.key)
        return runs.signed_count(self.key)

    def taken(self, runs: SendRuns) -> None:
        """A run, as short as it became, was handled."""
        if isinstance(self.key, FrameSeal):
            runs.seal_taken(self.key)


SenderOf: TypeAlias = "Callable[[Connection, str], Sender | None]"
"""Returns who signs with an access key, or seals if it is "", by a connection; None: the guard has
something to say."""


class Complaint(NamedTuple):
    """Why a seal is not good.

    Attributes:
        reason: For the node's log.
        is_said: Whether the client is answered that, too: it says nothing about users.
    """

    reason: str
    is_said: bool = False


class Seals:
    """Those of one node."""

    def __init__(self, config: NodeConfig, random: Random) -> None:
        """Make numbers with `random` and the cluster's secret."""
        node = config.node
        self._name, self._address = node.name, node.broker_address
        self._random = random
        self._key = key_of(config.cluster.secret, Purpose.REQUEST)
        ports = (node.port, node.vip_port, node.name_server_port)
        own = {f"{node.address}:{port}" for port in ports}
        if config.group.master_address is not None:
            own.add(config.group.master_address)
        self._own = frozenset(own)

    @serves(RequestCode.NODE_CHALLENGE, (Resource.CLIENTS, Action.READ))
    def challenge(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """NODE_CHALLENGE."""
        challenge = self._number()
        connection.challenges.append(challenge)
        del connection.challenges[:-CHALLENGES_MAX]
        if connection.signing is None:
            connection.signing = SealingPeer(self._number())
        body = ChallengeBody(challenge, connection.signing.challenge, self._address)
        return response_to(command, body=msgspec.json.encode(body))

    def _number(self) -> str:
        # With the key, so that nobody who has seen many of them knows the next.
        number = self._random.getrandbits(_CHALLENGE_BITS).to_bytes(_CHALLENGE_BITS // 8, "big")
        return hmac.new(self._key, number, hashlib.sha256).hexdigest()[:32]

    @serves(RequestCode.SIGN_IN, (Resource.CLIENTS, Action.READ), header=SignInHeader)
    def sign_in(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """SIGN_IN. Notes who says to seal from here on; the guard then looks at the seal."""
        header, peer = command.decode_header(SignInHeader), connection.signing
        said = header.access_key, header.target
        is_long = any(len(text.encode("utf-8", "replace")) > SIGN_IN_BYTES_MAX for text in said)
        if peer is None or not (connection.sealed_frame and header.access_key) or is_long:
            raise RequestError(
                ResponseCode.NO_PERMISSION,
                "signing in takes a number of this connection (NODE_CHALLENGE), a seal, and a name"
                f" and a target of at most {SIGN_IN_BYTES_MAX} bytes",
            )
        if peer.is_proven:
            if said != (peer.name, peer.target):
                raise RequestError(
                    ResponseCode.NO_PERMISSION,
                    "somebody else has signed in on this connection: open another one",
                )
            return response_to(command)
        connection.signing = peer = SealingPeer(peer.challenge)
        peer.name, peer.target = said
        if peer.target not in self._own:
            peer.complaint = (
                f"it is signed for {peer.target!r}, and this is {self._name} at {self._address}:"
                " where addresses are translated on the way, use TLS, or a name instead of a number"
            )
        return response_to(command)

    @staticmethod
    def why_not(
        connection: Connection, command: RemotingCommand, signer: Signer | None
    ) -> Complaint | None:
        """Say why a request is not rightly sealed; None: it is, and its number is used up.

        Args:
            connection: Has the frame.
            command: The request in it.
            signer: Of the name that has signed in; None: nobody known, or nobody who may sign.
        """
        seal = _seal_of(connection.signing, signer)
        if isinstance(seal, Complaint):
            return seal
        number = seal.number_of(command.opaque)
        if number is None:
            return Complaint(
                f"its number {command.opaque} is not above that of the request before it: it was"
                " sent again, or out of order",
                is_said=True,
            )
        with memoryview(connection.sealed_frame) as frame:
            if not seal.is_good(number, frame[:-SEAL_BYTES], frame[-SEAL_BYTES:]):
                return Complaint("the seal is wrong")
        seal.last = number
        return None

    def why_not_of_node(
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
        if target != self._address:
            return f"it is signed for {target!r}, and this is {self._name} at {self._address}"
        return None

    @staticmethod
    def ready(connection: Connection, signer: Signer) -> FrameSeal | None:
        """Return what checks the seals of a connection, if it has checked one already."""
        peer = connection.signing
        return None if peer is None or peer.complaint else peer.ready_seal(signer.secret_mark)


def _seal_of(peer: SealingPeer | None, signer: Signer | None) -> FrameSeal | Complaint:
    """Return what checks the seals of a connection, or why there is nothing."""
    if peer is None or not peer.name:
        return Complaint("nobody has signed in on this connection", is_said=True)
    if peer.complaint:
        return Complaint(peer.complaint, is_said=True)
    if signer is None:
        return Complaint("there is no such user, or they are disabled")
    try:
        return peer.seal_of(signer.secret_mark, signer.seal_key)
    except SealError as error:
        return Complaint(f"{error}: give the user a secret again (tandem user alter)")
