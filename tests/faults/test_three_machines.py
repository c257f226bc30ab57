"""Three machines as docs/security.md sets them up, each step of it, and what comes later there."""

import shutil
import sys
import time
from collections.abc import Iterator
from typing import Final

import pytest

from tandem.wire.remoting_command import RemotingCommand, encode_frame
from tandem.wire.request_code import RequestCode
from tests.compat.programs import JAVA, NotToBeHadError, classpath, java_command
from tests.faults.three_machines import (
    ADDRESSES,
    NODES,
    OPERATOR,
    PORT,
    SERVERS,
    Application,
    ThreeMachines,
    block,
    java_options,
    three_machines,
)
from tests.support.patience import wait_until

# Seven processes and a gigabyte of files: two minutes, in which others wait for the disk.
pytestmark = [
    pytest.mark.fault,
    pytest.mark.long,
    pytest.mark.slow,
    pytest.mark.xdist_group("three-machines"),
]

NO_PERMISSION: Final = 16
REFUSED: Final = [f"refused {NO_PERMISSION}"] * 3
AT_ONCE_SECONDS_MAX: Final = 30.0
"""Until another process has said so, on a busy machine; the pull would wait for a minute."""

BAD_CONFIGURATION: Final = 2
PORTS: Final = {"clients": PORT, "name server": 9876, "replication": 10913}
"""Of the master: no other node listens for replication."""

PLAIN: Final = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=60) as stream:
    stream.sendall(bytes.fromhex(sys.argv[3]))
    print(len(stream.recv(1)))
"""
"""A stranger without TLS: prints 0 when the connection is ended."""

UNKNOWN: Final = """
import socket, ssl, sys
context = ssl.create_default_context(cafile="tls/ca.pem")
context.load_cert_chain("stranger/client.pem", "stranger/client.key")
with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=60) as plain:
    try:
        with context.wrap_socket(plain, server_hostname=sys.argv[1]) as stream:
            stream.sendall(bytes.fromhex(sys.argv[3]))
            print(len(stream.recv(1)))
    except ssl.SSLError as error:
        print(error.reason)
"""
"""A stranger with a certificate of another CA: prints why the node has ended the connection."""

ASKING: Final = encode_frame(RemotingCommand(RequestCode.GET_BROKER_CLUSTER_INFO, 1)).hex()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeMachines]:
    """Three machines, set up as the page says from its first step to its sixth."""
    with three_machines(tmp_path_factory.mktemp("three")) as made:
        yield made


@pytest.fixture(scope="module")
def shop(world: ThreeMachines) -> Application:
    """The application in Python, which goes on to the end."""
    started = world.application("run", "shop", "bank")
    started.goes_on(1)
    return started


def jars_of(*profiles: str) -> str:
    """RocketMQ's client, and its tools if they are wanted; skips where they cannot be had."""
    try:
        return classpath("pom.xml", *profiles)
    except NotToBeHadError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def bank(world: ThreeMachines) -> Application:
    """The application in Java: at first it does what it may, and tries what it may not."""
    options = [each.replace("tls/client.", "tls/bank.") for each in java_options()]
    home = world.operator / "java"
    home.mkdir()
    own, other = ("bank-orders", "bank"), ("shop-orders", "shop")
    command = [*java_command(jars_of(), home, *options), str(JAVA / "UserProbe.java")]
    keys = ("bank", world.secret_keys["bank"])
    return world.start_program("java", *command, SERVERS, *keys, *own, *other)


def test_each_machine_has_a_node_and_all_of_them_are_in_sync(world: ThreeMachines) -> None:
    world.becomes_whole()
    assert set(world.secret_keys) == {"root", "shop", "bank"}


def test_the_application_of_the_page_sends(world: ThreeMachines) -> None:
    program = world.operator / "application.py"
    program.write_text(block("the application"))
    assert world.run(f"python application.py shop {world.secret_keys['shop']}") == "SEND_OK\n"


def test_an_application_may_its_own_topic_and_group_alone(shop: Application) -> None:
    shop.goes_on()
    assert [line for line in shop.lines() if "refused" in line] == REFUSED


def test_a_pull_that_waits_ends_when_its_user_is_disabled(
    world: ThreeMachines, shop: Application
) -> None:
    world.run("tandem topic create guest-orders")
    world.create_user("guest", "Sub Topic:guest-orders", "Sub Group:guest")
    guest = world.application("wait", "guest", "guest-orders")
    guest.wait_line("waiting")
    assert guest.process.poll() is None
    world.run("tandem user alter guest --disable")
    disabled = time.monotonic()
    guest.wait_line(f"ended {NO_PERMISSION}")
    assert time.monotonic() < disabled + AT_ONCE_SECONDS_MAX
    shop.goes_on()


def test_a_renewed_certificate_is_taken_and_no_connection_drops(
    world: ThreeMachines, shop: Application
) -> None:
    shop.goes_on()
    master = world.master()
    before = [world.certificate(number) for number in range(len(NODES))]
    connected = world.connections(master)
    assert connected
    world.run("tandem cluster certificates --renew")
    for number, name in enumerate(NODES):
        for kind in ("key", "pem"):
            file = f"tls/{name}.{kind}"
            shutil.copy2(world.operator / file, world.directories[number] / file)
    for number, name in enumerate(NODES):
        renewed = (world.operator / f"tls/{name}.pem").read_text().strip()
        assert renewed != before[number]
        wait_until(lambda number=number, new=renewed: world.certificate(number) == new)  # type: ignore[misc]
        assert world.certificate(number, 2379) == renewed
        assert world.nodes[number].poll() is None
    shop.goes_on()
    assert world.master() == master
    assert connected <= world.connections(master)


def test_who_speaks_no_tls_is_not_answered_at_any_port(world: ThreeMachines) -> None:
    master = ADDRESSES[world.master()]
    said = {name: ask(world, PLAIN, master, port) for name, port in PORTS.items()}
    assert said == dict.fromkeys(PORTS, "0")


def test_who_has_a_certificate_of_another_ca_is_not_answered_at_any_port(
    world: ThreeMachines,
) -> None:
    world.run("tandem cluster certificates --directory stranger")
    master = ADDRESSES[world.master()]
    said = {name: ask(world, UNKNOWN, master, port) for name, port in PORTS.items()}
    assert said == dict.fromkeys(PORTS, "TLSV1_ALERT_UNKNOWN_CA")


def ask(world: ThreeMachines, program: str, address: str, port: int) -> str:
    file = world.operator / "stranger.py"
    file.write_text(program)
    return world.run(f"python {file} {address} {port} {ASKING}").strip()


def test_a_killed_master_is_replaced_and_applications_go_on(
    world: ThreeMachines, shop: Application
) -> None:
    shop.goes_on()
    master = kill_master(world)
    shop.goes_on()
    world.start_node(master)
    world.becomes_whole()
    shop.goes_on()


def kill_master(world: ThreeMachines) -> int:
    """Kill the node of the master, and wait for another one; return the number of its machine."""
    master = world.master()
    world.nodes[master].kill()
    world.nodes[master].wait()
    world.master(not_this=master)
    return master


def test_a_machine_that_is_cut_off_takes_nothing_and_comes_back(
    world: ThreeMachines, shop: Application
) -> None:
    shop.goes_on()
    alone = world.master()
    world.net.cut(alone)
    try:
        # On the machine itself, where clients reach its node, and nobody else.
        there = world.application("once", "shop", machine=alone)
        there.process.wait()
        assert there.lines()
        assert there.lines() != ["SEND_OK"]
        world.wait_status(lambda status: not status["takes_messages"], machine=alone)
        world.master(not_this=alone)
        shop.goes_on()
        assert not world.status(alone)["takes_messages"]
        assert world.nodes[alone].poll() is None
    finally:
        world.net.mend(alone)
    world.becomes_whole()
    shop.goes_on()


def test_a_classic_group_leaves_its_machine_only_if_the_file_says_so(world: ThreeMachines) -> None:
    directory = world.operator / "classic"
    directory.mkdir()
    world.run(
        f"tandem cluster init --classic --address {ADDRESSES[OPERATOR]} --address 10.0.0.5\n"
        "sed -i 's/^  mode: disabled/  mode: enforcing/' cluster.yaml\n"
        "sed -i 's/^  clients: open/  clients: authorized/' cluster.yaml\n"
        "tandem cluster certificates",
        directory=directory,
    )
    node = (sys.executable, "-P", "-m", "tandem_server", "node", "--config")
    words = (*node, str(directory / "cluster.yaml"), "--name", "broker-a-0", "--supervised")
    refused = world.start_program("refused", *words)
    assert refused.process.wait() == BAD_CONFIGURATION
    assert "security.classic_ha_in_clear" in refused.errors()
    world.run(
        "sed -i 's/^  classic_ha_in_clear: false/  classic_ha_in_clear: true/' cluster.yaml",
        directory=directory,
    )
    started = world.start_program("started", *words)
    started.wait_line('READY {"name":"broker-a-0"}')


def test_an_application_in_java_may_its_own_and_goes_on_when_the_master_is_killed(
    world: ThreeMachines, shop: Application, bank: Application
) -> None:
    wait_until(lambda: len(bank.lines()) >= 2 + len(REFUSED))
    assert bank.lines() == ["sent", "consumed", *REFUSED]
    send(bank)
    master = kill_master(world)
    for _ in range(3):
        send(bank)
    shop.goes_on()
    world.start_node(master)
    world.becomes_whole()
    send(bank)


def send(bank: Application) -> None:
    """Have the application in Java send until one is acknowledged, and get it."""
    assert bank.process.stdin is not None
    sent, got = bank.lines().count("sent"), len(bank.keys("got"))
    while bank.lines().count("sent") == sent:
        lines = len(bank.lines())
        bank.process.stdin.write(b".")
        bank.process.stdin.flush()
        wait_until(lambda lines=lines: len(bank.lines()) > lines)  # type: ignore[misc]
    wait_until(lambda: len(bank.keys("got")) > got)


def test_mqadmin_as_super_user_lists_and_makes_topics_and_users(
    world: ThreeMachines,
) -> None:
    home = world.operator / "mqadmin"
    (home / "conf").mkdir(parents=True)
    keys = f"accessKey: root\nsecretKey: {world.secret_keys['root']}\n"
    (home / "conf/tools.yml").write_text(keys)
    main = "org.apache.rocketmq.tools.command.MQAdminStartup"
    command = [*java_command(jars_of("tools"), home, *java_options()), main]

    def mqadmin(words: str) -> str:
        started = world.start_program("mqadmin", *command, *words.split(), "-n", SERVERS)
        started.process.wait()
        return "\n".join(started.lines())

    nodes = mqadmin("clusterList")
    assert all(f"{address}:{PORT}" in nodes for address in ADDRESSES[:OPERATOR])
    assert "create topic to" in mqadmin("updateTopic -c Shop -t extra")
    assert "extra" in mqadmin("topicList").splitlines()
    assert "create user to" in mqadmin("createUser -c Shop -u carol -p of-carol-alone")
    assert "carol" in mqadmin("listUser -c Shop")
    assert "carol" in world.run("tandem user list")


def test_in_the_end_every_log_has_all_that_was_acknowledged(
    world: ThreeMachines, shop: Application
) -> None:
    world.becomes_whole()
    shop.goes_on()
    shop.process.kill()
    shop.process.wait()
    sent = shop.keys("sent")
    world.stop()
    world.check_logs(sent, shop.keys("sending") | {"once"})
    assert len(shop.keys("got")) > len(sent) / 2
