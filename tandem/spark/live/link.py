"""A connection that records are pulled over."""

import socket

from tandem.client.blocking_shell import RECEIVE_BYTES
from tandem.client.core import ClientCore
from tandem.client.errors import ConnectionCause, ConnectionLostError, RequestTimeoutError
from tandem.client.lost_connection import cause_of, reason_of
from tandem.client.name_servers import REQUEST_TIMEOUT_SECONDS
from tandem.client.plain_socket import PlainSocket, open_socket
from tandem.client.session import Session
from tandem.spark.live.pull_window import Pull
from tandem.wire.errors import WireError
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import PullMessageRequestHeader


class Link:
    """One connection to a broker: pulls go out together, and answers come in any order."""

    def __init__(
        self, address: str, opened: PlainSocket, core: ClientCore, *, is_master: bool
    ) -> None:
        self.address = address
        self.is_master = is_master
        self._socket = opened
        self._core = core
        self._session: Session[Pull] = Session(signer=core.signer(address))

    def request(self, header: PullMessageRequestHeader, pull: Pull) -> None:
        """Gather a pull. It has no deadline of its own: only silence while we listen counts."""
        self._session.request(RequestCode.PULL_MESSAGE, header, b"", pull, float("inf"))

    def exchange(self) -> list[tuple[Pull, RemotingCommand]]:
        """Send what is gathered, wait for bytes, return the answers that are complete.

        Raises:
            ClientError: the connection is over.
        """
        now = self._core.clock
        try:
            self._socket.settimeout(REQUEST_TIMEOUT_SECONDS)
            if data := self._session.data_to_send():
                self._socket.sendall(data)
            received = self._socket.recv(RECEIVE_BYTES)
            self._session.receive_data(received)
            answers = []
            while received and (answer := self._session.next_answer()) is not None:
                answers.append(answer)
            # Requests of a broker are about members of groups, and this is none.
            self._session.requests.clear()
        except TimeoutError:
            self._core.backoff.fell_silent(self.address, now())
            raise RequestTimeoutError(self.address) from None
        except (OSError, WireError) as error:
            self._core.backoff.failed(self.address, now())
            cause = cause_of(error, ConnectionCause.ENDED)
            raise ConnectionLostError(self.address, cause, reason_of(error)) from error
        if not received:
            self._core.backoff.failed(self.address, now())
            raise ConnectionLostError(self.address, ConnectionCause.ENDED, "the broker ended it")
        if answers:
            self._core.backoff.succeeded(self.address)
            self._core.backoff.spoke(self.address)
        return answers

    def unanswered(self) -> list[Pull]:
        """Forget the pulls in flight, and return them."""
        return [each.waiter for each in self._session.connection_lost()]

    def is_usable(self) -> bool:
        """Say whether it can go on: the broker has not hung up while it rested."""
        self._socket.settimeout(0)
        try:
            return bool(self._socket.recv(1, socket.MSG_PEEK))
        except BlockingIOError:
            return True
        except OSError:
            return False

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


def wide_socket(host: str, port: int, timeout_seconds: float) -> PlainSocket:
    """Open a connection that takes in answers while nobody reads: the task is busy then."""
    opened = open_socket(host, port, timeout_seconds)
    assert isinstance(opened, socket.socket)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * 1024 * 1024)
    return opened
