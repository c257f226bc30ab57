"""Registers this node with every node of the cluster, again and again, with what it serves.

Every node is a name server, so a broker registers with all of them, itself included: at start,
every few seconds, and at once when a topic changes. When this process dies its connections close,
and everybody drops it from the route in the same moment.

A name server gets the table once for each connection, in pieces; after that what has changed, or
that nothing has. If it does not know the pieces before any more, it says so, and gets all anew. One
of an earlier version gets the whole table each time.

A change of topics is known once every name server that can be reached has it: `when_known` says
so, and waits no longer than KNOWN_SECONDS_MAX. Nothing waits for a name server that is down: it
gets everything when it is back.

In a fenced group the master of the moment registers with broker id 0, and every registration
carries the epoch as the state version of its topics: name servers then know which of two masters
is the newer one.

Source: RocketMQ 5.3.3, BrokerController.registerBrokerAll.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, TypeAlias

import msgspec
import trio

from node.errors import RequestError
from node.name_server.newcomers import Newcomers
from node.name_server.route_table import RouteTable
from node.remoting.peer_link import REQUEST_SECONDS_MAX, PeerLink
from node.remoting.remoting_client import RemotingClient
from node.tables.topic_config_table import TopicConfigTable
from store.machine.network import Network
from store.machine.signal import Signal
from store.machine.tell_once import TellOnce
from tandem.cluster_file.choices import GroupKind
from tandem.cluster_file.cluster_config import NodeConfig
from tandem.cluster_file.settings import NodeSettings
from tandem.wire.name_server_headers import (
    QueryDataVersionRequestHeader,
    QueryDataVersionResponseHeader,
)
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import (
    RegisterBrokerBody,
    RegisterBrokerRequestHeader,
    RegistrationPart,
    TopicConfig,
    TopicConfigSerializeWrapper,
    UnregisterBrokerRequestHeader,
)
from tandem.wire.route import MASTER_ID, encode_json_body
from tandem.wire.secret_keys import Purpose, key_of

_log = logging.getLogger(__name__)

KNOWN_SECONDS_MAX: Final = 1.0
"""How long a change of topics is held up by name servers that do not answer."""

PAUSE_SECONDS_PER_TOPIC: Final = 10e-6
"""After what was registered, which takes a peer a tenth of that time."""

PIECE_TOPICS_MAX: Final = 800
"""Source: BrokerConfig.splitRegistrationSize."""

ALL_SECONDS_MAX: Final = 60.0
"""For all pieces; each has the time of a request."""


class _Given(NamedTuple):
    """What a peer has, or this node's own routes."""

    client: RemotingClient | None
    """The connection by which it has that; None of this node's own."""
    header: RegisterBrokerRequestHeader
    topics: TopicConfigSerializeWrapper


_Request: TypeAlias = tuple[RegisterBrokerRequestHeader, RegisterBrokerBody]


class Registration:
    """The registrations of one node."""

    def __init__(
        self,
        config: NodeConfig,
        network: Network,
        routes: RouteTable,
        newcomers: Newcomers,
        topics: TopicConfigTable,
        after_known: Callable[[], None],
    ) -> None:
        """Register what is in `topics`; call `after_known` after waiting changes are answered."""
        settings = config.cluster.broker
        node = config.node
        self._node_id = node.broker_id
        self._interval_seconds = settings.register_broker_interval_ms / 1000
        self._routes = routes
        self._newcomers = newcomers
        self._topics = topics
        self._header = RegisterBrokerRequestHeader(
            broker_name=node.group,
            broker_addr=node.broker_address,
            cluster_name=config.cluster.cluster.name,
            ha_server_addr=f"{node.address}:{node.ha_port}",
            broker_id=node.broker_id,
            heartbeat_timeout_millis=settings.broker_expired_timeout_ms,
            # Present, so that name servers take a lone slave's topics; see RouteTable.
            enable_acting_master=False,
            whole_table=True,
        )
        self._key = key_of(config.cluster.secret, Purpose.REQUEST)
        self._epoch = 0
        self._told: TellOnce[str] = TellOnce()
        self._after_known = after_known
        self._change = 0
        """How often topics have changed."""
        self._known: dict[str, int] = {}
        """The change that each peer has registered last, by its name."""
        self._given: dict[str, _Given] = {}
        """What each peer that takes parts has, by its name."""
        self._given_here: _Given | None = None
        """What is in this node's own routes."""
        self._waiting: deque[tuple[int, float, Callable[[], None]]] = deque()
        """The waiting callers: for which change, until when. Both only grow."""
        self._wake = Signal()
        self._scope = trio.CancelScope()
        self._links = [
            PeerLink(
                network,
                node.address,
                peer,
                "registration",
                partial(self._register_with, peer),
                address=config.address_of(peer),
                port=_name_server_port(config, peer),
                task_seconds_max=ALL_SECONDS_MAX,
            )
            for peer in config.cluster.nodes
            if peer.name != node.name
        ]

    def role_changed(self, *, is_master: bool, epoch: int) -> None:
        """Register everywhere now under the id that belongs to the role."""
        broker_id = MASTER_ID if is_master else self._node_id
        if (broker_id, epoch) != (self._header.broker_id, self._epoch):
            self._epoch = epoch
            self._header = msgspec.structs.replace(self._header, broker_id=broker_id)
            self.topics_changed()

    def master_address_changed(self, address: str | None) -> None:
        """Give clients this address for the master, or its own again, everywhere now."""
        self._header = msgspec.structs.replace(self._header, client_addr=address)
        self.topics_changed()

    def _peers_registered(self) -> None:
        """Nodes have just registered, and are up: if we could not reach them before, we can now."""
        addresses = self._newcomers.take()
        for link in self._links:
            if link.peer.broker_address in addresses:
                link.hurry()

    def leave(self) -> None:
        """Be in no route any more: the other name servers see the connections of `run` close."""
        self._scope.cancel()
        header = self._header
        self._routes.unregister(
            UnregisterBrokerRequestHeader(
                header.broker_name, header.broker_addr, header.cluster_name, header.broker_id
            )
        )

    def topics_changed(self) -> None:
        """Register the new topics everywhere now."""
        self._change += 1
        self._register_here()
        for link in self._links:
            link.hurry()

    def when_known(self, done: Callable[[], None]) -> None:
        """Call `done` once all name servers that are up know the topics there are now.

        That is at once if they do, and after KNOWN_SECONDS_MAX if they do not by then.
        """
        if not self._missing(self._change):
            done()
            return
        self._waiting.append((self._change, trio.current_time() + KNOWN_SECONDS_MAX, done))
        self._wake.notify()

    def _missing(self, change: int) -> list[str]:
        """Return the name servers that are up and do not know a change."""
        names = [link.peer.name for link in self._links if link.is_up]
        return [name for name in names if self._known.get(name, -1) < change]

    def _tell(self) -> None:
        """Answer callers that waited long enough, or whose change is known now."""
        told = False
        now = trio.current_time()
        while self._waiting:
            change, deadline, done = self._waiting[0]
            missing = self._missing(change)
            if missing and now < deadline:
                break
            if missing:
                _log.warning(
                    "a change of topics is not known yet at %s after %.1f s",
                    ", ".join(missing),
                    KNOWN_SECONDS_MAX,
                )
            self._waiting.popleft()
            done()
            told = True
        if told:
            self._after_known()

    async def _keep_telling(self) -> None:
        while True:
            self._tell()
            wake_at = self._waiting[0][1] if self._waiting else math.inf
            with trio.move_on_at(wake_at):
                await self._wake.wait()
            await trio.lowlevel.checkpoint()

    async def run(self) -> None:
        """Register until cancelled, or until `leave`."""
        with (
            self._scope,
            self._topics.changes.heard_by(self.topics_changed),
            self._newcomers.signal.heard_by(self._peers_registered),
        ):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._keep_telling)
                for link in self._links:
                    nursery.start_soon(link.run, self._interval_seconds)
                while True:
                    self._register_here()
                    await trio.sleep(self._interval_seconds)

    def _register_here(self) -> None:
        if self._scope.cancel_called:
            return
        header, topics, given = self._header, self._configs(), self._given_here
        self._given_here = None
        try:
            if given is None or not self._take_change_here(given, header, topics):
                now = trio.current_time()
                self._routes.register(header, topics, connection=None, now=now)
        except RequestError as error:
            if self._told.is_news(error.remark):
                _log.warning("this node is not in its own routes: %s", error.remark)
        else:
            self._given_here = _Given(None, header, topics)
            self._told.over()

    def _take_change_here(
        self,
        given: _Given,
        header: RegisterBrokerRequestHeader,
        topics: TopicConfigSerializeWrapper,
    ) -> bool:
        """Register a change here, if all else is registered; say whether it was taken."""
        names = self._changed_since(given.topics)
        is_there = self._routes.data_version(header.broker_addr) == given.topics.data_version
        if not names or not is_there or not _goes_on(given, header, topics):
            return False
        now = trio.current_time()
        try:
            for part, body in _changes(header, given.topics, topics, names):
                table = body.topic_config_serialize_wrapper
                self._routes.register(part, table, connection=None, now=now)
        except RequestError:
            return False  # the whole table says why, or is taken
        return True

    def _changed_since(self, given: TopicConfigSerializeWrapper) -> set[str] | None:
        return self._topics.changed_since(given.data_version)

    def _configs(self) -> TopicConfigSerializeWrapper:
        configs = self._topics.configs
        if not self._epoch:
            return configs
        version = msgspec.structs.replace(configs.data_version, state_version=self._epoch)
        return msgspec.structs.replace(configs, data_version=version)

    async def _register_with(self, peer: NodeSettings, client: RemotingClient) -> None:
        change, header, topics = self._change, self._header, self._configs()
        given = self._given.pop(peer.name, None)
        if given is None or given.client is not client:
            takes_parts = await self._takes_parts(peer, client)
            given = None
        else:
            takes_parts = True
        if not takes_parts:
            requests = [(header, RegisterBrokerBody(topics))]
        elif given is None or not _goes_on(given, header, topics):
            requests = _pieces(header, topics)
        else:
            requests = _changes(header, given.topics, topics, self._changed_since(given.topics))
        for number, (part, body) in enumerate(requests):
            if number:
                await _pause(body)
            await self._register(peer, client, part, body)
        if takes_parts:
            self._given[peer.name] = _Given(client, header, topics)
        self._known[peer.name] = change
        self._wake.notify()
        # Changes meanwhile go with the next one.
        await _pause(requests[-1][1])

    async def _register(
        self,
        peer: NodeSettings,
        client: RemotingClient,
        header: RegisterBrokerRequestHeader,
        body: RegisterBrokerBody,
    ) -> None:
        with trio.fail_after(REQUEST_SECONDS_MAX):
            await client.request_signed(
                RequestCode.REGISTER_BROKER,
                ext=header,
                body=encode_json_body(body),
                key=self._key,
                target=peer.broker_address,
            )

    async def _takes_parts(self, peer: NodeSettings, client: RemotingClient) -> bool:
        header = self._header
        asked = QueryDataVersionRequestHeader(
            *(header.broker_name, header.broker_addr, header.cluster_name, header.broker_id),
            takes_parts=True,
        )
        with trio.fail_after(REQUEST_SECONDS_MAX):
            answer = await client.request_signed(
                RequestCode.QUERY_DATA_VERSION,
                ext=asked,
                key=self._key,
                target=peer.broker_address,
            )
        return answer.decode_header(QueryDataVersionResponseHeader).takes_parts is True


async def _pause(sent: RegisterBrokerBody) -> None:
    count = len(sent.topic_config_serialize_wrapper.topic_config_table)
    await trio.sleep(count * PAUSE_SECONDS_PER_TOPIC)


def _goes_on(
    given: _Given, header: RegisterBrokerRequestHeader, topics: TopicConfigSerializeWrapper
) -> bool:
    """Say whether changes alone will do: it is still the same broker, under the same epoch."""
    before, now = given.topics.data_version, topics.data_version
    return given.header == header and before.state_version == now.state_version


def _pieces(
    header: RegisterBrokerRequestHeader, topics: TopicConfigSerializeWrapper
) -> list[_Request]:
    """Return the whole table in pieces, the first names first."""
    table = topics.topic_config_table
    names = sorted(table)
    starts = [0, *range(PIECE_TOPICS_MAX, len(names), PIECE_TOPICS_MAX)]
    return [
        (
            msgspec.structs.replace(
                header,
                whole_table=None,
                part=RegistrationPart.NEXT if start else RegistrationPart.FIRST,
                part_from=names[start] if start else None,
                part_to=next(iter(names[start + PIECE_TOPICS_MAX :][:1]), None),
            ),
            RegisterBrokerBody(
                _of(topics, {name: table[name] for name in names[start : start + PIECE_TOPICS_MAX]})
            ),
        )
        for start in starts
    ]


def _changes(
    header: RegisterBrokerRequestHeader,
    given: TopicConfigSerializeWrapper,
    topics: TopicConfigSerializeWrapper,
    names: set[str] | None,
) -> list[_Request]:
    """Return what has changed, in pieces; one of nothing if nothing has.

    `names` are those of topics that may have changed, where that is known: none is missing then.
    """
    table, before = topics.topic_config_table, given.topic_config_table
    removed: list[str] = []
    if names is None and table is not before:
        removed = [name for name in before if name not in table]
    looked_at = sorted(names) if names is not None else [] if table is before else list(table)
    changed = [name for name in looked_at if before.get(name) is not table[name]]
    header = msgspec.structs.replace(header, whole_table=None, part=RegistrationPart.CHANGE)
    count = max(len(changed), len(removed), 1)
    pieces = (slice(at, at + PIECE_TOPICS_MAX) for at in range(0, count, PIECE_TOPICS_MAX))
    return [
        (
            header,
            RegisterBrokerBody(
                _of(topics, {name: table[name] for name in changed[piece]}),
                removed_topics=removed[piece] or msgspec.UNSET,
            ),
        )
        for piece in pieces
    ]


def _of(
    topics: TopicConfigSerializeWrapper, some: dict[str, TopicConfig]
) -> TopicConfigSerializeWrapper:
    return msgspec.structs.replace(topics, topic_config_table=some)


def _name_server_port(config: NodeConfig, peer: NodeSettings) -> int:
    """Where a node takes registrations; that of a fenced group closes its other port at times."""
    is_fenced = config.cluster.groups[peer.group].kind is GroupKind.FENCED
    return peer.name_server_port if is_fenced else peer.port
