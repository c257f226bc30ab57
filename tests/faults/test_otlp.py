"""A node in a process of its own exports to a collector that comes, goes and refuses."""

import signal
import subprocess
from functools import partial
from pathlib import Path

import pytest
import trio

from tandem.client import Producer
from tandem.cluster import read_spec
from tandem.testing import write_cluster_file
from tandem.wire.message import Message
from tests.support.http_collector import HTTPCollector, collecting
from tests.support.loopback import own_network
from tests.support.patience import PATIENCE_SECONDS, until
from tests.support.processes import ENVIRONMENT, NODE

pytestmark = [pytest.mark.fault, pytest.mark.slow]

PORT = 4318
SECRET = "Bearer abcdef0123456789"


def lines_of(log: Path) -> list[str]:
    return [line for line in log.read_text().splitlines() if "metrics are" in line]


async def test_a_node_exports_and_is_troubled_by_no_collector(tmp_path: Path) -> None:
    address = f"{own_network()}.1"
    headers = tmp_path / "headers"
    headers.touch(0o600)
    headers.write_text(f"Authorization: {SECRET}\n")
    metrics = {
        "otlp_endpoint": f"http://{address}:{PORT}",
        "otlp_interval_ms": 1_000,
        "otlp_headers_file": "headers",
    }
    file = write_cluster_file(tmp_path, 0, {"metrics": metrics})
    log = tmp_path / "node.log"
    command = [*NODE, "--config", str(file), "--name", "broker-a-0", "--log-file", str(log)]
    at = HTTPCollector()
    servers = read_spec(file).name_servers
    with trio.fail_after(2 * PATIENCE_SECONDS):
        async with trio.open_nursery() as nursery:
            process = await nursery.start(
                partial(trio.run_process, command, env=ENVIRONMENT, check=False)
            )
            await until(lambda: log.exists() and len(lines_of(log)) == 1)
            async with collecting(at, address, PORT):
                async with Producer(servers, "p") as producer:
                    await producer.send(Message("Orders", b"x" * 99))
                while not (found := await at.next()).values(
                    "rocketmq_messages_in_total", topic="Orders"
                ):
                    pass
                assert found.values("rocketmq_messages_in_total", topic="Orders") == [1]
                assert found.values("process_open_fds", node="broker-a-0")[0] > 0
                assert at.seen[-1][1]["authorization"] == SECRET
                at.status = 503
                await at.next(3)
                at.status = 200
                await at.next(2)
            await until(lambda: len(lines_of(log)) == 5)
            process.send_signal(signal.SIGTERM)
            assert await process.wait() == 0
    said = [("WARNING" in line, "again" in line) for line in lines_of(log)]
    # Away, there, refuses, there again, away.
    assert [is_bad for is_bad, _ in said] == [True, False, True, False, True]
    assert "abcdef" not in log.read_text()


def test_a_node_says_which_file_it_cannot_use(tmp_path: Path) -> None:
    (tmp_path / "headers").write_text("no header")
    (tmp_path / "headers").chmod(0o600)
    metrics = {"otlp_endpoint": "http://127.0.0.1:4318", "otlp_headers_file": "headers"}
    file = write_cluster_file(tmp_path, 0, {"metrics": metrics})
    done = subprocess.run(
        [*NODE, "--config", str(file), "--name", "broker-a-0"],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()[-1:]
    assert f"{tmp_path / 'headers'}:1" in line
