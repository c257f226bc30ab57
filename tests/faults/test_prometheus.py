"""A real Prometheus with our rules scrapes a real group: what it knows, and when it calls."""

import json
import shutil
import urllib.parse
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import yaml

from tandem.client import Admin, ClientError, Consumer
from tandem.cluster import ClusterSpec
from tests.faults.real_group import NODES, TOPIC, under_load, write_group
from tests.support.loopback import own_network
from tests.support.paths import ROOT
from tests.support.patience import PATIENCE_SECONDS

pytestmark = [
    pytest.mark.fault,
    pytest.mark.long,
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="Prometheus is not installed"),
]

PORT = 5557
CLUSTER = "DefaultCluster"
WEB_PORT = 9090


def write_prometheus(directory: Path, spec: ClusterSpec) -> Path:
    """Write what is in the examples, with short times."""
    examples = ROOT / "examples" / "monitoring"
    rules = yaml.safe_load((examples / "rules.yml").read_text(encoding="utf-8"))
    for rule in rules["groups"][0]["rules"]:
        if "for" in rule:
            rule["for"] = "1s"
    (directory / "rules.yml").write_text(yaml.safe_dump(rules), encoding="utf-8")
    config = yaml.safe_load((examples / "prometheus.yml").read_text(encoding="utf-8"))
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["scrape_configs"][0]["static_configs"][0]["targets"] = [
        f"{node.client_address.partition(':')[0]}:{PORT}" for node in spec.nodes
    ]
    file = directory / "prometheus.yml"
    file.write_text(yaml.safe_dump(config), encoding="utf-8")
    return file


class Asking:
    """What Prometheus answers."""

    def __init__(self, address: str) -> None:
        self._address = address

    async def query(self, expression: str) -> list[tuple[dict[str, str], str]]:
        """Labels and values, none while it does not answer."""
        target = f"/api/v1/query?query={urllib.parse.quote(expression)}"
        request = f"GET {target} HTTP/1.0\r\nHost: x\r\n\r\n".encode()
        answer = b""
        try:
            async with await trio.open_tcp_stream(self._address, WEB_PORT) as stream:
                await stream.send_all(request)
                async for some in stream:
                    answer += some
        except OSError:
            return []
        head, _, body = answer.partition(b"\r\n\r\n")
        if b" 200 " not in head.splitlines()[0]:
            return []
        found: Any = json.loads(body)["data"]["result"]
        return [(each["metric"], each["value"][1]) for each in found]

    async def until(self, expression: str) -> list[tuple[dict[str, str], str]]:
        """Ask until there is an answer with something in it."""
        with trio.fail_after(PATIENCE_SECONDS):
            while not (found := await self.query(expression)):
                await trio.sleep(0.2)
        return found

    async def alerts(self, name: str) -> list[tuple[dict[str, str], str]]:
        """Wait until it fires."""
        return await self.until(f'ALERTS{{alertname="{name}",alertstate="firing"}}')


@asynccontextmanager
async def scraping(directory: Path, spec: ClusterSpec) -> AsyncIterator[Asking]:
    """A Prometheus that scrapes the nodes of a group."""
    web = f"{own_network()}.1"
    command = [
        "prometheus",
        f"--config.file={write_prometheus(directory, spec)}",
        f"--storage.tsdb.path={directory / 'prometheus'}",
        f"--web.listen-address={web}:{WEB_PORT}",
        "--log.level=error",
    ]
    async with trio.open_nursery() as nursery:
        await nursery.start(partial(trio.run_process, command))
        yield Asking(web)
        nursery.cancel_scope.cancel()


async def consume(spec: ClusterSpec) -> None:
    """Be a member of a group that reads what comes."""
    async with Consumer(spec.name_servers, "readers") as consumer:
        async for _ in consumer.subscribe(TOPIC):
            pass


async def ask_for_nothing(spec: ClusterSpec) -> None:
    """Have requests refused, one after the other."""
    async with Admin(spec.name_servers) as admin:
        while True:
            with suppress(ClientError):
                await admin.describe_group("nobody")
            await trio.sleep(0.2)


def panels() -> dict[str, list[str]]:
    """The queries of each panel of the dashboard, as Grafana asks them for a local cluster."""
    file = ROOT / "examples" / "monitoring" / "dashboard.json"
    dashboard = json.loads(file.read_text(encoding="utf-8"))
    return {
        panel["title"]: [
            target["expr"].replace("$cluster", CLUSTER).replace("$__rate_interval", "20s")
            for target in panel["targets"]
        ]
        for panel in dashboard["panels"]
        if panel["type"] != "row"
    }


async def test_every_panel_of_the_dashboard_has_data(tmp_path: Path) -> None:
    """Of a group under load that somebody reads from, and that refuses something."""
    spec = write_group(tmp_path, metrics={"port": PORT})
    async with (
        under_load(spec),
        scraping(tmp_path, spec) as asked,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(consume, spec)
        nursery.start_soon(ask_for_nothing, spec)
        known = await asked.until("count by (cluster) (tandem_broker_running)")
        assert [labels["cluster"] for labels, _ in known] == [CLUSTER]
        for title, expressions in panels().items():
            for expression in expressions:
                found = await asked.until(expression)
                assert all(value != "NaN" for _, value in found) or "quantile" in expression, title
        nursery.cancel_scope.cancel()


async def test_prometheus_knows_a_group_and_calls_when_a_node_hangs(tmp_path: Path) -> None:
    spec = write_group(tmp_path, metrics={"port": PORT})
    async with under_load(spec) as group, scraping(tmp_path, spec) as asked:
        await asked.until("sum(up) == 3")
        (of_master,) = await asked.until('tandem_role{role="master"}')
        assert of_master[0]["node"] == await group.master()
        came = f'sum(rocketmq_messages_in_total{{topic="{TOPIC}"}}) > {len(group.acked)}'
        await asked.until(came)
        follower = next(name for name in NODES if name != of_master[0]["node"])
        group.cluster.pause(follower)
        ((labels, _),) = await asked.alerts("TandemReplicaNotInSync")
        assert labels["replica"] == follower
        await asked.alerts("TandemOneLossFromStanding")
        group.cluster.resume(follower)
        await asked.until("tandem_in_sync_replicas == 3")
        await group.cluster.kill(of_master[0]["node"])
        await asked.until('max(tandem_epoch) > 1 and on() tandem_role{role="master"}')
        await asked.alerts("TandemNodeDown")
