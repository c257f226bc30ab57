"""What every kind of client has: name servers, routes, heartbeats, and how brokers did lately.

Rules only, as flows (see `tandem.client.flow`); one `ClientCore` belongs to one client object.

A route is fetched when it is first needed, again every 30 s by the shell's `upkeep`, and again
after a failure: at once, and then at the pauses of `retry_pause_seconds`, which begin with 50 ms; a
topic without a route never more often than `ROUTE_RETRY_SECONDS`. An old route is kept when no name
server answers, and when they have forgotten the topic (they do when they restart).

All name servers are asked, and what they say is put together (`route_search`): one that has just
started knows less than the others, and one may be cut off together with the old master. After a
failure the first news of another master ends the search.

Source: RocketMQ 5.3.3, MQClientInstance.updateTopicRouteInfoFromNameServer and
sendHeartbeatToAllBroker.
"""

import math
import ssl
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from tandem.client.backoff import Backoff, retry_pause_seconds
from tandem.client.broker_request import BrokerRequests
from tandem.client.credentials import Credentials
from tandem.client.errors import ClientError, RouteCause, RouteNotFoundError
from tandem.client.flow import Call, Flow, Pause, Shared, call_successfully
from tandem.client.identity import ClientIdentity
from tandem.client.name_servers import REQUEST_TIMEOUT_SECONDS, NameServers
from tandem.client.route_search import RouteSearch
from tandem.client.routes import TopicRoute, default_route
from tandem.client.signer import Signer
from tandem.wire.errors import ArgumentError
from tandem.wire.frame_seal import Signatures
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import (
    ConsumerData,
    GetRouteInfoRequestHeader,
    HeartbeatData,
    ProducerData,
    SubscriptionData,
    UnregisterClientRequestHeader,
)
from tandem.wire.route import MASTER_ID, TopicRouteData, encode_json_body
from tandem.wire.system_topics import AUTO_CREATE_TOPIC

UPKEEP_SECONDS: Final = 30.0
"""RocketMQ's pollNameServerInterval and heartbeatBrokerInterval."""

SWITCH_SECONDS: Final = 12.0
"""How long is waited for a master by what only a master can do: a switch takes up to 8 s."""

ROUTE_RETRY_SECONDS: Final = 0.25
"""Between two tries for one topic, at most: a sender must not flood the name servers. Without a
route always this long, since it is rather missing than about to change."""

FRESH_SECONDS: Final = 1.0
"""If a topic was not asked for during this time, its next failure counts as a new one."""

SUSPECT_ROUTE_SECONDS: Final = 1.0
"""How long a request with an old route at hand waits for a fresh one."""


class ClientCore:
    """The part of a client that is the same for producers, consumers and administrators.

    `clock` is the shell's, in seconds; flows compute deadlines with it.
    """

    def __init__(
        self,
        name_servers: str | Sequence[str],
        *,
        identity: ClientIdentity,
        clock: Callable[[], float],
        producer_group: str | None = None,
        consumer_group: str | None = None,
        credentials: Credentials | None = None,
        signatures: Signatures = Signatures.REPLAY_PROOF,
        tls: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        self.credentials = credentials
        self._signatures = signatures
        self.tls = tls
        self.clock = clock
        self.identity = identity
        self.backoff = Backoff()
        self.broker_requests = BrokerRequests()
        self.routes: dict[str, TopicRoute] = {}
        self.name_servers = NameServers(parse_addresses(name_servers), self.backoff, clock)
        self._producer_group = producer_group
        self._consumer_group = consumer_group
        self._tried_at: dict[str, float] = {}
        self._tries_in_a_row: dict[str, int] = {}
        self._suspects: set[str] = set()
        self._greeted: set[str] = set()
        self._informed: set[str] = set()
        self._ends: Counter[str] = Counter()
        """How often a connection to an address has ended."""
        self._consumer_data: ConsumerData | None = None

    def signer(self, address: str) -> Signer | None:
        """Return what signs on a new connection to an address; None: nothing is signed."""
        if self.credentials is None:
            return None
        has_tls = self.tls is not None
        return Signer(self.credentials, address, self._signatures, has_tls=has_tls)

    def refresh_route(self, topic: str) -> Flow[None]:
        """Fetch the route of `topic`. A producer takes that of new topics if there is none.

        Raises:
            RouteNotFoundError: there is none, or no name server answers.
        """
        known = self.routes.get(topic)
        is_default = known is None or known.is_default
        suspected = topic in self._suspects
        try:
            data = yield from self._search_route(
                topic, None if known is None or is_default else known.data, suspected=suspected
            )
            # A topic whose sends fail, and which nobody knows any more: a change of the master may
            # have taken it away with the first messages, and it is made anew as it was made then.
            is_default = (is_default or suspected) and data is None and self._is_producer
            if is_default:
                data = yield from self._search_route(
                    AUTO_CREATE_TOPIC, known.data if known else None, suspected=suspected
                )
        finally:
            self._note_try(topic)
        if data is not None:
            old = self.routes.get(topic)
            self.routes[topic] = TopicRoute(
                topic,
                default_route(data) if is_default else data,
                is_default=is_default,
                turn=old.turn if old else self.identity.salt,
            )
            self._suspects.discard(topic)
        elif topic not in self.routes:
            raise RouteNotFoundError(
                topic, RouteCause.NO_TOPIC, "the name servers know no such topic"
            )

    @property
    def _is_producer(self) -> bool:
        return self._producer_group is not None

    def _search_route(
        self, topic: str, known: TopicRouteData | None, *, suspected: bool
    ) -> Flow[TopicRouteData | None]:
        search = RouteSearch(topic, known, suspected=suspected)
        ext = GetRouteInfoRequestHeader(topic, accept_standard_json_only=True)
        yield from self.name_servers.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext, search)
        return search.route()

    def suspect_route(self, topic: str) -> None:
        """A request that followed the route failed: look for a fresh one before the next."""
        self._suspects.add(topic)

    def trusted_route(self, topic: str) -> TopicRoute | None:
        """Return the route if there is one and nothing failed since it was fetched."""
        return None if topic in self._suspects else self.routes.get(topic)

    def route(self, topic: str, deadline: float, *, for_sends: bool = False) -> Flow[TopicRoute]:
        """Return the route of `topic`, fetching it if there is none or it is suspected.

        With `for_sends` a route without a queue that takes sends is as good as none.

        Raises:
            RouteNotFoundError: none can be had now.
        """
        known = self.routes.get(topic)
        usable = known is not None and bool(known.publish_queues or not for_sends)
        if known is not None and usable:
            if topic in self._suspects and self._tried_lately_for(topic) <= 0:
                yield from self._try_to_refresh(topic, deadline)
            return self.routes.get(topic, known)
        tried_at = self._tried_at.get(topic)
        wait = min(self._tried_lately_for(topic), deadline - self.clock())
        if wait > 0:
            yield Pause(wait)
        if self._tried_at.get(topic) == tried_at:
            yield Shared(f"route {topic}", deadline, partial(self.refresh_route, topic))
        if topic not in self.routes:
            raise RouteNotFoundError(
                topic,
                RouteCause.NO_NAME_SERVER,
                "no name server gave a route in time",
                may_pass=True,
            )
        return self.routes[topic]

    def _tried_lately_for(self, topic: str) -> float:
        """Seconds until the name servers may be asked about `topic` again; 0 or less: now."""
        pause = ROUTE_RETRY_SECONDS
        if topic in self.routes:
            pause = min(pause, retry_pause_seconds(self._tries_in_a_row.get(topic, 0)))
        return self._tried_at.get(topic, -math.inf) + pause - self.clock()

    def _note_try(self, topic: str) -> None:
        now = self.clock()
        in_a_row = now < self._tried_at.get(topic, -math.inf) + FRESH_SECONDS
        self._tries_in_a_row[topic] = self._tries_in_a_row.get(topic, 0) + 1 if in_a_row else 0
        self._tried_at[topic] = now

    def _try_to_refresh(self, topic: str, deadline: float) -> Flow[None]:
        # The old route is still worth a try, so no failure here is one of the request.
        try:
            deadline = min(deadline, self.clock() + SUSPECT_ROUTE_SECONDS)
            yield Shared(f"route {topic}", deadline, partial(self.refresh_route, topic))
        except ClientError:
            assert topic in self.routes

    def upkeep(self) -> Flow[None]:
        """Fetch all routes again and send heartbeats. Failures wait for the next time."""
        for topic in list(self.routes):
            try:
                yield Shared(f"route {topic}", math.inf, partial(self.refresh_route, topic))
            except ClientError:
                self.suspect_route(topic)
        yield from self.heartbeat(self._heartbeat_addresses())

    @property
    def strangers(self) -> list[str]:
        """Brokers that have not heard over the connection of now what heartbeats say."""
        return [each for each in self._heartbeat_addresses() if each not in self._informed]

    def consumes(self, data: ConsumerData) -> None:
        """Let heartbeats say this from now on, of a consumer that shares its group's queues."""
        self._consumer_data = data
        self._informed.clear()

    def connection_ended(self, address: str) -> None:
        """A broker forgets a client with its connection."""
        self._greeted.discard(address)
        self._informed.discard(address)
        self._ends[address] += 1

    def heartbeat(self, addresses: list[str]) -> Flow[None]:
        """Tell brokers who this is. Failures wait for the next time."""
        body = encode_json_body(self._heartbeat())
        for address in addresses:
            ends = self._ends[address]
            call = Call(
                address,
                RequestCode.HEART_BEAT,
                None,
                self.clock() + REQUEST_TIMEOUT_SECONDS,
                body,
            )
            try:
                yield from call_successfully(call)
            except ClientError:
                continue
            self._greeted.add(address)
            # The connection may have ended while its answer waited to be looked at.
            if ends == self._ends[address]:
                self._informed.add(address)

    def _heartbeat(self) -> HeartbeatData:
        producers = [ProducerData(self._producer_group)] if self._producer_group else []
        consumers = []
        if self._consumer_data is not None:
            consumers = [self._consumer_data]
        elif self._consumer_group:
            subscriptions = [SubscriptionData(topic) for topic in sorted(self.routes)]
            consumers = [ConsumerData(self._consumer_group, subscription_data_set=subscriptions)]
        return HeartbeatData(self.identity.client_id, producers, consumers)

    def _heartbeat_addresses(self) -> list[str]:
        """Masters; for a consumer the other nodes as well, since they may serve its reads."""
        if self._producer_group is None and self._consumer_group is None:
            return []
        return sorted(
            {
                address
                for route in self.routes.values()
                for broker in route.data.broker_datas
                for broker_id, address in broker.broker_addrs.items()
                if broker_id == MASTER_ID or self._consumer_group
            }
        )

    def goodbye(self) -> Flow[None]:
        """Tell the brokers that had a heartbeat that this client ends. Best effort."""
        ext = UnregisterClientRequestHeader(
            self.identity.client_id, self._producer_group, self._consumer_group
        )
        deadline = self.clock() + 1.0
        for address in sorted(self._greeted):
            try:
                yield from call_successfully(
                    Call(address, RequestCode.UNREGISTER_CLIENT, ext, deadline)
                )
            except ClientError:
                continue


def parse_addresses(name_servers: str | Sequence[str]) -> list[str]:
    """Return the addresses in a list, or in one text with `;` between them.

    Raises:
        ArgumentError: there is none, or one is not `host:port`.
    """
    if isinstance(name_servers, str):
        name_servers = name_servers.split(";")
    addresses = [address.strip() for address in name_servers if address.strip()]
    if not addresses:
        raise ArgumentError(
            'no name server given; give all of them: ["127.0.0.1:9876", "127.0.0.2:9876"]',
            "name_servers",
        )
    for address in addresses:
        try:
            split_address(address)
        except ArgumentError as error:
            raise ArgumentError(str(error), "name_servers") from None
    return addresses


def split_address(address: str) -> tuple[str, int]:
    """Return host and port of "host:port" or "[v6]:port".

    Raises:
        ArgumentError: it is something else.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
        text = f'address {address!r} is not "host:port", such as "127.0.0.1:9876"'
        raise ArgumentError(text, "address")
    return host.strip("[]"), int(port)
