"""ClientPeerLogs: asks the other nodes of a fenced group about their logs, at their client ports.

Requests and answers are signed, so no stranger's bytes get into a log.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

import msgspec
import trio

from ha.errors import NoPart, PeerSilentError
from node.remoting.remoting_client import (
    AnswerNotSignedError,
    RemotingClient,
    RequestFailedError,
    open_client,
)
from store.machine.network import ConnectionLost, Network
from tandem.cluster_file.cluster_config import NodeConfig
from tandem.cluster_file.settings import NodeSettings
from tandem.wire.errors import WireError
from tandem.wire.peer_log import LogRangeHeader, PeerLogPart
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.route import decode_json_body
from tandem.wire.secret_keys import Purpose, key_of

ANSWER_SECONDS_MAX: Final = 3.0


class ClientPeerLogs:
    """The other nodes of one node's group."""

    def __init__(self, config: NodeConfig, network: Network) -> None:
        own = config.node
        self._network = network
        self._source = own.address
        self._key = key_of(config.cluster.secret, Purpose.REQUEST)
        self._peers = {peer.name: peer for peer in config.peers}

    @asynccontextmanager
    async def session(self, peer: str) -> AsyncIterator[_Session]:
        """See `PeerLogs`."""
        async with AsyncExitStack() as stack:
            yield _Session(self._peers[peer], self._network, self._source, self._key, stack)


class _Session:
    def __init__(
        self,
        peer: NodeSettings,
        network: Network,
        source: str,
        key: bytes,
        stack: AsyncExitStack,
    ) -> None:
        self._peer = peer
        self._network = network
        self._source = source
        self._key = key
        self._stack = stack
        self._client: RemotingClient | None = None
        self._trouble = ""
        self._cause = NoPart.SILENT

    async def part(self, start: int, end: int) -> PeerLogPart:
        answer = await self._ask(RequestCode.LOG_FINGERPRINTS, start, end)
        try:
            part = decode_json_body(answer.body, PeerLogPart)
        except WireError as error:
            raise PeerSilentError(f"{self._peer.name}: {error}") from error
        if part.node != self._peer.name:
            text = f"{part.node} answers in the place of {self._peer.name}"
            raise PeerSilentError(text, NoPart.OTHER_PART)
        return part

    async def data(self, start: int, end: int, history: str = "") -> bytes:
        answer = await self._ask(RequestCode.LOG_BYTES, start, end, history or None)
        if len(answer.body) != end - start:
            raise PeerSilentError(
                f"{self._peer.name} gave {len(answer.body)} bytes for {start} to {end}",
                NoPart.OTHER_PART,
            )
        return bytes(answer.body)

    async def doubt(self, start: int, end: int) -> None:
        await self._ask(RequestCode.LOG_DAMAGED, start, end)

    async def _ask(
        self, code: int, start: int, end: int, history: str | None = None
    ) -> RemotingCommand:
        if self._trouble:
            raise PeerSilentError(self._trouble, self._cause)
        name = self._peer.name
        try:
            with trio.fail_after(ANSWER_SECONDS_MAX):
                client = self._client or await self._connect()
                return await client.request_signed(
                    code,
                    ext=LogRangeHeader(start, end, history),
                    key=self._key,
                    target=self._peer.broker_address,
                    is_answer_signed=code != RequestCode.LOG_DAMAGED,
                )
        except RequestFailedError as error:
            raise PeerSilentError(f"{name}: {error.answer.remark}", NoPart.REFUSED) from error
        except (ConnectionLost, WireError, trio.TooSlowError, msgspec.DecodeError) as error:
            # The connection is finished: what comes next on it may be an answer to this.
            reason = str(error) or f"no answer within {ANSWER_SECONDS_MAX:g} s"
            self._trouble = f"{name}: {reason}"
            if isinstance(error, AnswerNotSignedError):
                self._cause = NoPart.UNPROVEN
            raise PeerSilentError(self._trouble, self._cause) from error

    async def _connect(self) -> RemotingClient:
        self._client = await self._stack.enter_async_context(
            open_client(
                self._network,
                self._peer.address,
                self._peer.port,
                source=self._source,
                timeout_seconds=ANSWER_SECONDS_MAX,
            )
        )
        return self._client
