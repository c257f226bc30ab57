"""A drill of real RocketMQ that somebody has deployed: SYNC_MASTER, started by a shell.

Java's client is a witness of what its brokers give, and their stores are read where they are.
"""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
import yaml

from tandem.drill.errors import MissingRequirementError
from tandem.drill.outcomes import EXIT_BROKEN
from tandem.drill.targets.rocketmq_jars import find_jars
from tests.support.deployed import ended_at_last, in_background, write_file
from tests.support.loopback import own_network
from tests.support.paths import ROOT
from tests.support.processes import started, wait_output

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200), pytest.mark.xdist_group("rocketmq")]

TANDEM: Final = (sys.executable, "-P", "-c", "from tandem.cli import main; main()")
OPENED: Final = " ".join(
    f"--add-opens java.base/{name}=ALL-UNNAMED" for name in ("java.nio", "sun.nio.ch")
)
HA_PORT: Final = 10_912
OTHERS: Final = "--add-opens java.base/jdk.internal.ref=ALL-UNNAMED"
EXPORTS: Final = "--add-exports java.base/jdk.internal.ref=ALL-UNNAMED"
NAME_SERVER: Final = "org.apache.rocketmq.namesrv.NamesrvStartup"
BROKER: Final = "org.apache.rocketmq.broker.BrokerStartup"


def java(class_path: str, main_class: str, home: str) -> str:
    """The command line of a program of RocketMQ's, with its properties in `home`."""
    memory = "-Xmx256m -XX:MaxDirectMemorySize=256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1"
    ratios = (
        "-Drocketmq.broker.diskSpaceWarningLevelRatio=0.99"
        " -Drocketmq.broker.diskSpaceCleanForciblyRatio=0.99"
    )
    where = f"-Duser.home={home} -Drocketmq.home.dir={home}"
    return (
        f"exec java {memory} {OPENED} {OTHERS} {EXPORTS} {ratios} {where}"
        f" -cp {class_path} {main_class} -c {home}/given.properties"
    )


def properties(home: Path, **values: str) -> None:
    home.mkdir(parents=True)
    (home / "given.properties").write_text(
        "".join(f"{key}={value}\n" for key, value in values.items())
    )


def deploy(directory: Path, class_path: str, base: str) -> Path:
    """Write all that is needed: a name server, a master and a slave, and the drill's file."""
    servers = f"{base}.1:9876"
    properties(
        directory / "name-server",
        bindAddress=f"{base}.1",
        listenPort="9876",
        rocketmqHome=str(directory / "name-server"),
        kvConfigPath=str(directory / "name-server" / "kvConfig.json"),
    )
    nodes = []
    for number, role in enumerate(("SYNC_MASTER", "SLAVE")):
        name, address = f"broker-r-{number}", f"{base}.{number + 2}"
        store = directory / name / "store"
        properties(
            directory / name,
            brokerClusterName="Deployed",
            brokerName="broker-r",
            brokerId=str(number),
            brokerRole=role,
            namesrvAddr=servers,
            bindAddress=address,
            brokerIP1=address,
            brokerIP2=address,
            listenPort="10911",
            haListenPort=str(HA_PORT + os.getpid() % 20_000 + number),
            storePathRootDir=str(store),
            storePathCommitLog=str(store / "commitlog"),
            mappedFileSizeCommitLog=str(16 << 20),
            inSyncReplicas="2",
            autoCreateTopicEnable="false",
            brokerFastFailureEnable="false",
            transactionCheckInterval="5000",
            transactionCheckMax="1000",
        )
        nodes.append({"name": name, "address": address, "port": 10911, "store": str(store)})
    program = java(class_path, BROKER, f"{directory}/$NODE")
    (directory / "broker.sh").write_text(f"mkdir -p $NODE/store\n{program}\n")
    content = {
        "kind": "rocketmq-classic",
        "version": "5.3.3",
        "group": "broker-r",
        "name_servers": [servers],
        "settings": {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2"},
        "patience": 10,
        "nodes": nodes,
    }
    return write_file(directory, content, start=in_background("sh broker.sh"))


def drill(file: Path, *options: str) -> subprocess.CompletedProcess[str]:
    line = [*TANDEM, "drill", *options, "--target", "processes", "--file", str(file)]
    return subprocess.run(
        [*line, "--out", str(file.parent / "report")],
        check=False,
        capture_output=True,
        text=True,
        timeout=900,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


@contextmanager
def deployed(directory: Path) -> Iterator[Path]:
    """Have a name server, and all that brokers need; the drill's file. `jars` has RocketMQ."""
    for program in ("java", "mvn"):
        if shutil.which(program) is None:
            pytest.skip(f"needs `{program}`")
    try:
        jars = find_jars("maven:5.3.3")
    except MissingRequirementError as error:
        pytest.skip(str(error))
    (directory / "jars").mkdir()
    for jar in map(Path, jars.class_path.split(os.pathsep)):
        (directory / "jars" / jar.name).symlink_to(jar)
    file = deploy(directory, jars.class_path, own_network())
    name_server = java(jars.class_path, NAME_SERVER, str(directory / "name-server"))
    with ended_at_last(directory), (directory / "name-server.out").open("wb") as output:
        server = subprocess.Popen(["sh", "-c", name_server], stdout=output, stderr=output)
        try:
            yield file
        finally:
            with suppress(ProcessLookupError):
                os.kill(server.pid, signal.SIGKILL)
            server.wait()


def test_a_deployed_sync_master_is_drilled_with_javas_client_as_witness(tmp_path: Path) -> None:
    with deployed(tmp_path) as file:
        done = drill(
            file,
            *("master-loss", "freeze-and-resume", "--rate", "60", "--duration", "16"),
            *("--witness", "java", "--rocketmq", str(tmp_path / "jars")),
        )

    place = tmp_path / "report" / "summary.json"
    assert place.exists(), done.stderr[-3000:]
    summary: dict[str, Any] = msgspec.json.decode(place.read_bytes())
    assert [run["outcome"] for run in summary["runs"]] == ["ran to its end"] * 2, done.stderr[
        -3000:
    ]
    assert summary["sync_acknowledged"] > 0
    assert summary["target"]["version"] == "rocketmq-classic 5.3.3"
    assert "2 replicas" in summary["target"]["contract"]
    assert summary["promises_broken"] == 0, done.stdout
    consumers = summary["consumers"]
    assert all(consumers["handled"].values())
    assert not consumers["broken_counts"]
    witness = summary["witness"]
    assert witness["deliveries"] > 0
    assert {witness[name] for name in ("missing", "different", "unknown", "out_of_order")} == {0}


STEADY: Final = """\
promise: x
group: classic
steps:
  - start the load
  - play 100 %
  - drain
"""
LINES: Final = 240
"""Enough for each producer to come round all queues after a lie, also on a slow machine."""


@pytest.mark.parametrize(
    ("lie", "finding"),
    [("forget", "sync_lost"), ("double", "duplicated"), ("reorder", "out_of_order")],
)
def test_brokers_that_lie_are_found_with_their_evidence(
    lie: str, finding: str, tmp_path: Path
) -> None:
    """Planted: a proxy between clients and RocketMQ forgets, doubles or reorders one message."""
    (tmp_path / "steady.yaml").write_text(STEADY)
    (tmp_path / "lines.txt").write_text("".join(f"line {number}\n" for number in range(LINES)))
    with deployed(tmp_path) as file:
        content = yaml.safe_load(file.read_text())
        (server,) = content["name_servers"]
        brokers = [f"{node['address']}:{node['port']}" for node in content["nodes"]]
        fronts = {back: in_front_of(back) for back in (server, *brokers)}
        content["name_servers"] = [fronts[server]]
        file.write_text(yaml.safe_dump(content, sort_keys=False))
        pairs = [f"{front}={back}" for back, front in fronts.items()]
        command = [sys.executable, "-m", "tests.support.lying_proxy", lie, *pairs]
        with started(command, stdin=subprocess.PIPE) as proxy:
            wait_output(proxy, "ready")
            options = ("--input", str(tmp_path / "lines.txt"), "--rate", "60", "--duration", "8")
            done = drill(file, str(tmp_path / "steady.yaml"), *options)
            assert proxy.stdin is not None
            proxy.stdin.close()
            assert proxy.stdout is not None
            said = proxy.stdout.read()

    assert said.split() == ["lied"], done.stderr[-3000:]
    assert done.returncode == EXIT_BROKEN, done.stderr[-3000:]
    summary = msgspec.json.decode((tmp_path / "report" / "summary.json").read_bytes())
    assert summary[finding] >= 1
    found = next(each for each in summary["evidence"] if each["finding"] == finding)
    assert found["is_broken"]
    assert found["rule"]
    assert set(found["disks"]) == {"broker-r-0", "broker-r-1"}


def in_front_of(address: str) -> str:
    """Another address of the same length: that of the proxy."""
    host, _, port = address.rpartition(":")
    return f"{host[:-1]}{int(host[-1]) + 4}:{port}"
