"""How one connection of a client signs: with seals, or with RocketMQ's signature.

    ASKING ---- a node of ours answers ----> SEALING     each request sealed: good once, here alone
      |    +--- another broker, but TLS,
      |         or Signatures.ANY ---------> ROCKETMQ    as RocketMQ's clients sign
      +-------- another broker, in clear -> ASKING      what waited is refused; the next asks again

Whether a broker knows seals, its answer to NODE_CHALLENGE says, which anybody on the way can write
in clear. So in clear there is no way back to signatures that can be sent again unless the user of
the client wants it: with `Signatures.ANY`. TLS shows who answers, and hides what is signed.

Nor does the answer say which node is meant: in clear it is the address that was dialled, so that a
node that passes everything on to another one gains nothing. A name says no more than who answers
to it; and TLS has looked at the certificate.
"""

import enum
import ipaddress

from tandem.client.credentials import Credentials
from tandem.wire.errors import MalformedFrameError
from tandem.wire.frame_seal import FrameSeal, Signatures, SignInHeader, connection_key
from tandem.wire.remoting_command import (
    ONEWAY_FLAG,
    RESPONSE_FLAG,
    RemotingCommand,
    SerializeType,
    encode_frame,
)
from tandem.wire.request_code import RequestCode
from tandem.wire.request_signature import ChallengeBody
from tandem.wire.response_code import ResponseCode
from tandem.wire.route import decode_json_body

_KNOWS_NO_SEALS = frozenset(
    {
        ResponseCode.SUCCESS,  # a node of ours of before, which gives no number of the connection
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
        ResponseCode.NO_PERMISSION,
    }
)
"""What brokers answer that do not know seals; others are about this moment alone."""


class SignerState(enum.Enum):
    """See the drawing above."""

    ASKING = "asking"
    SEALING = "sealing"
    ROCKETMQ = "rocketmq"


class Signer:
    """Signs the requests of one connection.

    Attributes:
        state: See above.
    """

    def __init__(
        self, credentials: Credentials, address: str, signatures: Signatures, *, has_tls: bool
    ) -> None:
        """Sign what is sent to the node that was dialled at `address`, "host:port"."""
        self.state = SignerState.ASKING
        self._credentials = credentials
        self._address = address
        self._may_sign_as_rocketmq = has_tls or signatures is Signatures.ANY
        self._is_known_otherwise = has_tls or not _is_number(address)
        self._seal: FrameSeal | None = None

    def answered(self, answer: RemotingCommand) -> RemotingCommand | None:
        """Take the answer to NODE_CHALLENGE.

        Returns:
            What all requests are answered that have waited for it; None: sign them.
        """
        if (found := _number_in(answer)) is not None:
            target = found.address if self._is_known_otherwise else self._address
            secret, name = self._credentials.secret_key, self._credentials.access_key
            self._seal = FrameSeal(connection_key(secret, name, found.connection, target))
            self._target = target
            self.state = SignerState.SEALING
            return None
        if answer.code not in _KNOWS_NO_SEALS:
            return answer
        if self._may_sign_as_rocketmq:
            self.state = SignerState.ROCKETMQ
            return None
        return RemotingCommand(
            ResponseCode.NO_PERMISSION,
            flag=RESPONSE_FLAG,
            remark=(
                f"not sent: {self._address} does not know signatures that are good once (it is"
                " RocketMQ, or an older node), and one that can be sent again is not given away in"
                ' clear. Use TLS; or, where nobody listens, signatures="any"'
            ),
        )

    def sign_in(self, opaque: int) -> bytes:
        """Return the frame that says who seals from here on. It is not answered."""
        header = SignInHeader(self._credentials.access_key, self._target)
        command = RemotingCommand(
            RequestCode.SIGN_IN,
            opaque,
            ONEWAY_FLAG,
            ext=header,
            serialize_type=SerializeType.MSGPACK,
        )
        return self.sealed(encode_frame(command), opaque)

    def sealed(self, frame: bytes, opaque: int) -> bytes:
        """Return a frame with its seal. They leave in the order in which they are sealed."""
        assert self._seal is not None, "asked for while SEALING"
        return self._seal.sealed(frame, opaque)

    def signed(self, command: RemotingCommand) -> RemotingCommand:
        """Return a request as RocketMQ's clients sign it."""
        return self._credentials.signed(command)


def _number_in(answer: RemotingCommand) -> ChallengeBody | None:
    if answer.code != ResponseCode.SUCCESS:
        return None
    try:
        found = decode_json_body(answer.body, ChallengeBody)
    except MalformedFrameError:
        return None
    return found if found.connection else None


def _is_number(address: str) -> bool:
    try:
        ipaddress.ip_address(address.rpartition(":")[0].strip("[]"))
    except ValueError:
        return False
    return True
