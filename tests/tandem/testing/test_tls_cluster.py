"""Whole clusters with TLS, as processes: every client, every port, every mode."""

import asyncio
import datetime as dt
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from tandem.client import (
    Admin,
    BlockingAdmin,
    BlockingConsumer,
    BlockingProducer,
    BlockingPullConsumer,
    ClusterAccess,
    Producer,
    SendStatus,
)
from tandem.client.errors import ClientError
from tandem.cluster.certificates import make_certificates
from tandem.cluster_file.errors import ClusterError
from tandem.cluster_file.load import load_config
from tandem.testing import RunningCluster, running_cluster, running_fenced_cluster
from tandem.wire.message import Message
from tandem.wire.tls_engine import TLSEngine
from tests.support.patience import PATIENCE_SECONDS, PATIENT_LEASE, wait_until

pytestmark = [pytest.mark.slow]

ENFORCING: dict[str, dict[str, Any]] = PATIENT_LEASE | {
    "tls": {"mode": "enforcing", "client_auth": "require"},
    "broker": {"vip_channel_enable": True},
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    directory = tmp_path_factory.mktemp("tls")
    with running_fenced_cluster(directory, settings=ENFORCING) as running:
        yield running


def ports(cluster: RunningCluster) -> dict[str, tuple[str, int]]:
    """All ports at which the nodes listen, but those of the coordinator."""
    config = load_config(cluster.spec.file)
    found = {}
    for node in config.nodes:
        found[f"{node.name} clients"] = (node.address, node.port)
        found[f"{node.name} vip"] = (node.address, node.vip_port)
        found[f"{node.name} names"] = (node.address, node.name_server_port)
    master = config.node(cluster.wait_for_master()).node
    found["replication"] = (master.address, master.replication_port)
    return found


def test_every_port_speaks_tls_and_nothing_else(cluster: RunningCluster) -> None:
    assert cluster.access.tls is not None
    context = cluster.access.tls.client_context()
    for what, (host, port) in ports(cluster).items():
        with socket.create_connection((host, port), PATIENCE_SECONDS) as plain:
            plain.sendall(b"\0\0\0\x20\0\0\0\x10" + bytes(24))
            with suppress(ConnectionError):
                assert plain.recv(100) == b"", what
        with (
            socket.create_connection((host, port), PATIENCE_SECONDS) as opened,
            context.wrap_socket(opened, server_hostname=host) as secured,
        ):
            assert secured.version() == "TLSv1.3", what


def test_nobody_without_a_certificate_is_served_where_one_is_asked_for(
    cluster: RunningCluster,
) -> None:
    assert cluster.access.tls is not None
    bare = msgspec.structs.replace(cluster.access.tls, certificate_file="", key_file="")
    access = msgspec.structs.replace(cluster.access, tls=bare)
    with BlockingAdmin(access) as admin, pytest.raises(ClientError):
        admin.topics()


def test_a_message_gets_through_by_each_kind_of_client(cluster: RunningCluster) -> None:
    access = cluster.access

    async def send(topic: str) -> None:
        async with Producer(access, group="p") as producer:
            for number in range(3):
                sent = await producer.send(Message(topic, b"%d" % number))
                assert sent.status is SendStatus.SEND_OK

    trio.run(send, "Mixed")
    asyncio.run(send("Mixed"))
    with BlockingProducer(access, group="p") as producer:
        assert producer.send(Message("Mixed", bytes(50_000))).status is SendStatus.SEND_OK
    received: list[bytes] = []
    with BlockingConsumer(access, group="c") as consumer:
        received += [message.body for message in islice(consumer.subscribe("Mixed"), 7)]
    assert sorted(received) == sorted([b"0", b"1", b"2", b"0", b"1", b"2", bytes(50_000)])


def test_a_master_that_is_killed_is_replaced_and_nothing_is_lost(
    cluster: RunningCluster,
) -> None:
    with BlockingProducer(cluster.access, group="p") as producer:
        sent = [producer.send(Message("Kept", b"%d" % each)).queue_offset for each in range(20)]
        master = cluster.wait_for_master()
        cluster.kill(master)
        sent += [producer.send(Message("Kept", b"%d" % each)).queue_offset for each in (20, 21)]
        cluster.start(master)
    cluster.wait_in_sync()
    with BlockingPullConsumer(cluster.access, group="g") as consumer:
        bodies = {
            message.body
            for queue in consumer.fetch_message_queues("Kept")
            for message in consumer.pull(queue, 0).messages
        }
    assert bodies == {b"%d" % each for each in range(22)}


def test_a_renewed_certificate_is_read_while_connections_live(cluster: RunningCluster) -> None:
    assert cluster.access.tls is not None
    context = cluster.access.tls.client_context()
    node = load_config(cluster.spec.file).nodes[0]

    def shown() -> bytes | None:
        with (
            socket.create_connection((node.address, node.port), PATIENCE_SECONDS) as opened,
            context.wrap_socket(opened, server_hostname=node.address) as secured,
        ):
            return secured.getpeercert(binary_form=True)

    before = shown()
    config = load_config(cluster.spec.file)
    directory = Path(cluster.access.tls.ca_file).parent
    with BlockingProducer(cluster.access, group="p") as producer:
        producer.send(Message("Renewed", b"before"))
        make_certificates(config, directory, now=dt.datetime.now(dt.UTC), renew=True)
        wait_until(lambda: shown() != before)
        producer.send(Message("Renewed", b"after"))
    wait_until(lambda: "certificates were read again" in cluster.log_text(node.name))
    # A key that does not fit is not taken.
    key = directory / f"{node.name}.key"
    good, now_shown = key.read_bytes(), shown()
    shutil.copy(directory / "ca.key", key)
    wait_until(lambda: "is not the key of" in cluster.log_text(node.name))
    assert shown() == now_shown
    key.write_bytes(good)


def test_openssl_believes_a_node(cluster: RunningCluster) -> None:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl")
    assert cluster.access.tls is not None
    files = cluster.access.tls
    node = cluster.spec.nodes[0]
    done = subprocess.run(
        [
            *[openssl, "s_client", "-connect", node.client_address, "-verify_return_error"],
            *["-CAfile", files.ca_file, "-verify_ip", node.address, "-brief"],
            *["-cert", files.certificate_file, "-key", files.key_file],
        ],
        input=b"",
        capture_output=True,
        check=True,
    )
    assert b"Verification: OK" in done.stderr


def test_permissive_nodes_serve_both(tmp_path: Path) -> None:
    settings = PATIENT_LEASE | {"tls": {"mode": "permissive"}}
    with running_fenced_cluster(tmp_path, settings=settings) as cluster:
        clear = ClusterAccess(cluster.name_servers)
        for access in (clear, cluster.access):
            with BlockingProducer(access, group="p") as producer:
                assert producer.send(Message("T", b"x")).status is SendStatus.SEND_OK
        assert "is dialled in clear" not in "".join(
            cluster.log_text(node.name) for node in cluster.status()
        )
        # Nodes are switched one after the other: some speak TLS and some do not.
        cluster.spec = msgspec.structs.replace(cluster.spec, tls=None)
        file = cluster.spec.file
        text = file.read_text()
        for old, new in (("permissive", "disabled"), ("disabled", "permissive")):
            text = text.replace(old, new)
            file.write_text(text)
            for node in cluster.nodes:
                cluster.restart(node)
                cluster.wait_in_sync()
                with BlockingProducer(clear, group="p") as producer:
                    sent = producer.send(Message("T", b"x"))
                    assert sent.status is SendStatus.SEND_OK
        assert "is dialled in clear" in "".join(
            cluster.log_text(node.name) for node in cluster.status()
        )


def test_slaves_of_a_classic_group_copy_beside_clients_with_tls(tmp_path: Path) -> None:
    """RocketMQ's replication knows no TLS; on this machine it may be in clear."""
    with running_cluster(tmp_path, settings={"tls": {"mode": "enforcing"}}) as cluster:

        async def send() -> None:
            async with (
                Admin(cluster.access) as admin,
                Producer(cluster.access, group="p") as producer,
            ):
                sent = await producer.send(Message("T", b"x"))
                assert sent.status is SendStatus.SEND_OK
                assert await admin.topics()

        trio.run(send)


def test_a_node_whose_certificate_is_missing_says_what_to_do(tmp_path: Path) -> None:
    with running_cluster(
        tmp_path, slaves_count=0, settings={"tls": {"mode": "enforcing"}}
    ) as cluster:
        node = cluster.nodes[0]
        files = load_config(cluster.spec.file).node(node).tls_files
        Path(files.certificate_file).unlink()
        with pytest.raises(ClusterError, match="tandem cluster certificates"):
            cluster.restart(node)


def test_the_coordinator_speaks_tls_and_nothing_else(cluster: RunningCluster) -> None:
    assert cluster.access.tls is not None
    settings = cluster.spec.coordinator
    with socket.create_connection((settings.address, settings.port), PATIENCE_SECONDS) as plain:
        plain.sendall(b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n")
        with suppress(ConnectionError):
            assert plain.recv(100) == b""
    context = cluster.access.tls.client_context()
    with (
        socket.create_connection((settings.address, settings.port), PATIENCE_SECONDS) as opened,
        context.wrap_socket(opened, server_hostname=settings.address) as secured,
    ):
        secured.sendall(b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n")
        assert secured.recv(100).startswith(b"HTTP/1.1 200")


ATTEMPTS = 3
FLOOD_SECONDS = 1.5
KNOCKERS = 3
KNOCKS_MIN = 100
QUIET_REQUESTS = 20
USUAL_SECONDS_MAX = 0.1
USUAL_TIMES_MAX = 20
"""A busy machine is measured while nobody knocks."""


def test_handshakes_of_strangers_delay_nobody_who_is_served(cluster: RunningCluster) -> None:
    """A hello costs a node a signature, and whoever sends it next to nothing."""
    assert cluster.access.tls is not None
    engine = TLSEngine(cluster.access.tls.client_context(), server_name="127.0.0.1")
    engine.handshake(b"")
    hello = engine.to_send()
    node = cluster.spec.node(cluster.wait_for_master())
    is_over = threading.Event()
    knocked = [0]

    def knock() -> None:
        while not is_over.is_set():
            with (
                suppress(OSError),
                socket.create_connection((node.address, node.port), PATIENCE_SECONDS) as stranger,
            ):
                stranger.sendall(hello)
            knocked[0] += 1

    def asked_seconds() -> float:
        begun = time.monotonic()
        admin.ha_runtime_info(f"{node.address}:{node.port}")
        return time.monotonic() - begun

    def flood() -> tuple[list[float], list[float]]:
        """How long requests take while nobody knocks, and while strangers do."""
        quiet = sorted(asked_seconds() for _ in range(QUIET_REQUESTS))
        is_over.clear()
        knocked[0] = 0
        seconds: list[float] = []
        threads = [threading.Thread(target=knock) for _ in range(KNOCKERS)]
        for thread in threads:
            thread.start()
        try:
            end = time.monotonic() + FLOOD_SECONDS
            while time.monotonic() < end or knocked[0] < KNOCKS_MIN:
                seconds.append(asked_seconds())
        finally:
            is_over.set()
            for thread in threads:
                thread.join()
        return quiet, sorted(seconds)

    # A node that is held up by strangers is so each time; a machine that is busy is not.
    for left in reversed(range(ATTEMPTS)):
        with BlockingAdmin(cluster.access) as admin:
            admin.topics()
            quiet, seconds = flood()
        seconds_max = max(USUAL_SECONDS_MAX, USUAL_TIMES_MAX * quiet[len(quiet) // 2])
        # The usual request: what a busy machine does to one of them says nothing of the node.
        if seconds[len(seconds) // 2] < seconds_max:
            break
        assert left, (quiet[-5:], seconds[-5:])
    with BlockingProducer(cluster.access, group="p") as producer:
        assert producer.send(Message("Flood", b"x")).status is SendStatus.SEND_OK
