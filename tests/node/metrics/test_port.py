import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import h11
import msgspec
import pytest
import trio

from node.figures.node_report import NodeReport
from node.metrics.collection import Collection
from node.metrics.port import CONNECTIONS_MAX, LIMITS, SAME_SECONDS, MetricsPort
from store.machine.network import ConnectionLost, Stream
from store.machine.service_manager import GETS_ON, ServiceManager
from tandem.cluster_file.cluster_config import ClusterConfig
from tandem.cluster_file.settings import MetricsSettings
from tests.node.doubles import Broker
from tests.node.handlers.inspected import put
from tests.node.world import MASTER, World, fenced_cluster, open_world
from tests.support.patience import PATIENCE_SECONDS

PORT = 5557
OWN = b'{cluster="DefaultCluster",group="broker-a",node="a1"'


def with_port(config: ClusterConfig) -> ClusterConfig:
    metrics = MetricsSettings(
        port=PORT, address=MASTER, allow_unauthenticated=True, allow_in_clear=True
    )
    return msgspec.structs.replace(config, metrics=metrics)


class Asked:
    """One client of the port."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self._http = h11.Connection(h11.CLIENT)

    async def get(
        self, target: str, method: str = "GET", **headers: str
    ) -> tuple[int, dict[bytes, bytes], bytes]:
        """Ask, and return status, headers and body."""
        http = self._http
        request = h11.Request(
            method=method, target=target, headers=[("Host", "x"), *headers.items()]
        )
        data = (http.send(request) or b"") + (http.send(h11.EndOfMessage()) or b"")
        await self.stream.send_all(data)
        response, body = None, b""
        while not isinstance(event := http.next_event(), h11.EndOfMessage):
            if event is h11.NEED_DATA:
                http.receive_data(await self.stream.receive_some(1 << 16))
            elif isinstance(event, h11.Response):
                response = event
            elif isinstance(event, h11.Data):
                body += event.data
        assert response is not None
        if http.our_state is h11.DONE and http.their_state is h11.DONE:
            http.start_next_cycle()
        return response.status_code, dict(response.headers), body


@asynccontextmanager
async def asking(world: World) -> AsyncIterator[Asked]:
    stream = await world._client.connect(MASTER, PORT, source=None)
    try:
        yield Asked(stream)
    finally:
        await stream.aclose()


@asynccontextmanager
async def open_port(directory: Path) -> AsyncIterator[tuple[World, NodeReport]]:
    """A port alone, without a node."""
    config, report = with_port(fenced_cluster(directory)), NodeReport()
    async with open_world(config) as world, trio.open_nursery() as nursery:
        world._machines["a1"] = world.network.machine(MASTER)
        node, machine = config.node("a1"), world._machine("a1")
        collection = Collection(node, machine, report)
        await nursery.start(MetricsPort(node, machine, report, collection).run)
        nursery.start_soon(collection.watch_loop)
        with trio.fail_after(PATIENCE_SECONDS):
            yield world, report
        nursery.cancel_scope.cancel()


async def test_a_node_without_a_store_lives_and_is_not_ready(
    tmp_path: Path, autojump_clock: object
) -> None:
    async with open_port(tmp_path) as (world, _), asking(world) as client:
        assert (await client.get("/livez"))[0] == 200
        status, _, body = await client.get("/readyz")
        assert (status, json.loads(body)["ok"]) == (503, False)
        status, headers, body = await client.get("/metrics")
        assert status == 200
        assert headers[b"content-type"] == b"text/plain; version=0.0.4; charset=utf-8"
        assert (
            b'tandem_broker_running{cluster="DefaultCluster",group="broker-a",node="a1"} 0\n'
            in body
        )
        assert b"tandem_role" not in body


async def test_figures_of_a_broker_in_either_format(tmp_path: Path, autojump_clock: object) -> None:
    broker = Broker()
    put(broker, 3)
    broker.tables.commit("g", "T", 0, 1)
    async with open_port(tmp_path) as (world, report), asking(world) as client:
        with report.serving(broker.sources()):
            _, headers, body = await client.get("/metrics", accept="application/openmetrics-text")
            assert headers[b"content-type"].startswith(b"application/openmetrics-text")
            assert body.endswith(b"# EOF\n")
            _, _, text = await client.get("/metrics")
    line = next(each for each in text.splitlines() if each.startswith(b"rocketmq_consumer_lag_mes"))
    assert line == (
        b'rocketmq_consumer_lag_messages{cluster="DefaultCluster",node_type="broker",node_id="broker-a",'
        b'topic="T",consumer_group="g",is_retry="false",is_system="false"} 2'
    )


async def test_who_asks_again_within_a_second_gets_the_same(
    tmp_path: Path, autojump_clock: object
) -> None:
    async with open_port(tmp_path) as (world, _), asking(world) as client:
        first = (await client.get("/metrics"))[2]
        await trio.sleep(SAME_SECONDS / 4)
        assert (await client.get("/metrics"))[2] == first
        await trio.sleep(SAME_SECONDS)
        assert (await client.get("/metrics"))[2] != first  # the loop was looked at meanwhile


@pytest.mark.parametrize(
    ("method", "target", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/metrics/../etc/passwd", 404),
        ("POST", "/metrics", 405),
        ("DELETE", "/readyz", 405),
        ("HEAD", "/metrics", 200),
        ("GET", "/healthz?for=everybody", 503),
        ("GET", "/healthz", 503),
        ("GET", "/livez?x=%ff", 200),
    ],
)
async def test_nothing_else_is_served(
    method: str, target: str, status: int, tmp_path: Path, autojump_clock: object
) -> None:
    async with open_port(tmp_path) as (world, _), asking(world) as client:
        found, _, body = await client.get(target, method)
        assert found == status
        assert (method == "HEAD") == (body == b"")


async def test_hostile_bytes_end_their_connection_and_nothing_else(
    tmp_path: Path, autojump_clock: object
) -> None:
    async with open_port(tmp_path) as (world, _):
        for data in (b"\0" * 99, b"GET / HTTP/1.1\r\nX: " + b"y" * 99_999, b"\x16\x03\x01\0"):
            async with asking(world) as hostile:
                answer = b""
                with suppress(ConnectionLost):  # it was closed while much is still on its way
                    await hostile.stream.send_all(data)
                    while some := await hostile.stream.receive_some(1 << 16):
                        answer += some
                assert answer.startswith(b"HTTP/1.1 4") or not answer
        async with asking(world) as client:
            assert (await client.get("/livez"))[0] == 200


async def test_connections_are_bounded_and_those_that_say_nothing_go(
    tmp_path: Path, autojump_clock: object
) -> None:
    async with open_port(tmp_path) as (world, _):
        machine = world._client
        silent = [await machine.connect(MASTER, PORT, source=None) for _ in range(CONNECTIONS_MAX)]
        await trio.sleep(1)
        async with asking(world) as late:
            assert (await late.get("/livez"))[0] == 200
            with suppress(ConnectionLost):
                assert await silent[0].receive_some(1) == b""
        await trio.sleep(LIMITS.idle_seconds + 1)
        async with asking(world) as client:
            assert (await client.get("/livez"))[0] == 200
        for stream in silent:
            await stream.aclose()


async def test_a_mistake_in_a_figure_is_one_bad_scrape(
    tmp_path: Path, autojump_clock: object, caplog: pytest.LogCaptureFixture
) -> None:
    broker = Broker()
    sources = msgspec.structs.replace(broker.sources(), live=lambda: [None])
    async with open_port(tmp_path) as (world, report), asking(world) as client:
        with report.serving(sources):
            assert (await client.get("/metrics"))[0] == 500
        assert (await client.get("/livez"))[0] == 200
    assert "a bug" in caplog.text


async def test_nothing_listens_unless_it_is_asked_for(
    tmp_path: Path, autojump_clock: object
) -> None:
    config = fenced_cluster(tmp_path)
    async with open_world(config) as world, trio.open_nursery() as nursery:
        world._machines["a1"] = world.network.machine(MASTER)
        node, machine, report = config.node("a1"), world._machine("a1"), NodeReport()
        port = MetricsPort(node, machine, report, Collection(node, machine, report))
        await nursery.start(port.run)
        with pytest.raises(ConnectionLost):
            async with asking(world):
                pass


async def test_a_node_says_what_it_is_here_and_to_its_service_manager(
    tmp_path: Path, autojump_clock: object
) -> None:
    config = with_port(fenced_cluster(tmp_path))
    said: list[str] = []

    class Manager(ServiceManager):
        def say(self, state: str) -> bool:
            said.append(state)
            return True

    async with open_world(config) as world:
        machine_of = world._machine
        manager = Manager({"NOTIFY_SOCKET": "x", "WATCHDOG_USEC": "4000000"}, 1)
        world._machine = lambda name: msgspec.structs.replace(  # type: ignore[method-assign]
            machine_of(name), service_manager=manager
        )
        await world.start("a1")
        async with asking(world) as client:
            status, _, body = await client.get("/readyz")
            assert (status, json.loads(body)["role"]) == (503, "FOLLOWER")
            assert said[:1] == ["WATCHDOG=1"]
            assert "READY=1" in said
            await trio.sleep(10)
            assert said.count("WATCHDOG=1") >= 5
            text = (await client.get("/metrics"))[2].decode()
            assert (
                'tandem_role{cluster="DefaultCluster",group="broker-a",node="a1",role="follower"} 1'
                in text
            )
            await world.stop("a1")
    assert said[said.index("STOPPING=1") :] == ["STOPPING=1", GETS_ON]
