"""`tandem shadow` of RocketMQ 5.3.3's own broker: under load, through kills, and beside a slave."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread  # noqa: TID251 - load beside what is watched
from typing import Final

import pytest

import tandem
from tests.compat.programs import NotToBeHadError, classpath
from tests.compat.real_broker import RealProgram, broker, name_server, own_address
from tests.support.paths import ROOT
from tests.support.patience import wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(600), pytest.mark.xdist_group("rocketmq")]

TANDEM: Final = (sys.executable, "-P", "-c", "from tandem.cli import main; main()")
SLAVE_TIMEOUT_MS: Final = 1_000
FILE_BYTES: Final = 16_777_216


class World:
    """A name server, a master whose puts wait for a slave, and shadows of it."""

    def __init__(self, jars: str, directory: Path) -> None:
        self.jars = jars
        self.directory = directory
        self.address = own_address()
        self.servers = f"{self.address}:9876"
        self.name_server = name_server(jars, directory / "names", self.address)
        self.master = self.broker("master", brokerRole="SYNC_MASTER")
        self.copy = directory / "copy"

    def broker(self, name: str, **settings: str) -> RealProgram:
        own = {"inSyncReplicas": "2", "slaveTimeout": str(SLAVE_TIMEOUT_MS)}
        address = settings.pop("address", self.address)
        home = self.directory / name
        return broker(self.jars, home, address, self.servers, **own, **settings)

    @contextmanager
    def shadow(self, *options: str) -> Iterator[subprocess.Popen[str]]:
        """One that is stopped with Ctrl-C, and must end well."""
        ha = f"{self.address}:{self.master.settings['haListenPort']}"
        command = [*TANDEM, "shadow", ha, "--directory", str(self.copy), "-n", self.servers]
        command += ["--slave-timeout-ms", str(SLAVE_TIMEOUT_MS), "--format", "jsonl", *options]
        log = self.directory / "shadow.log"
        with log.open("a") as output:
            process = subprocess.Popen(
                command,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdout=output,
                stderr=output,
                text=True,
            )
        try:
            yield process
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0, log.read_text()[-2000:]
        finally:
            process.kill()
            process.wait()

    def held(self, home: Path) -> bytes:
        files = sorted((home / "commitlog").glob("0*"))
        return b"".join(file.read_bytes() for file in files).rstrip(b"\0")

    @property
    def is_equal(self) -> bool:
        if not (self.copy / "commitlog").is_dir():
            return False
        return self.held(self.copy) == self.held(self.master.home / "store")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    try:
        world = World(classpath("pom.xml", "tools"), tmp_path)
    except NotToBeHadError as error:
        pytest.skip(str(error))
    with world.name_server, world.master:
        with tandem.BlockingAdmin(world.servers) as admin:
            wait_until(lambda: "broker-a" in admin.cluster_info().broker_addr_table)
            admin.create_topic("Orders", queue_nums=4)
        yield world


def send(world: World, count: int, *, body_bytes: int = 1_000) -> list[tuple[str, float]]:
    """Send one after the other; return each status and how long it took."""
    answers = []
    with tandem.BlockingProducer(world.servers, "load") as producer:
        for number in range(count):
            begin = time.monotonic()
            message = tandem.Message("Orders", b"%d " % number + b"x" * body_bytes)
            result = producer.send(message)
            answers.append((result.status.name, time.monotonic() - begin))
    return answers


def test_no_producer_is_answered_because_of_a_shadow(world: World) -> None:
    with world.shadow():
        send(world, 1)
        wait_until(lambda: world.is_equal)
        answers = send(world, 3)
        assert {status for status, _ in answers} == {"FLUSH_SLAVE_TIMEOUT"}
        assert min(seconds for _, seconds in answers) >= SLAVE_TIMEOUT_MS / 1000
        wait_until(lambda: world.is_equal)
    # One that counts: so the question above can be answered otherwise.
    with world.shadow("--count-as-slave"):
        wait_until(lambda: send(world, 1)[0][0] == "SEND_OK")
        assert {status for status, _ in send(world, 20)} == {"SEND_OK"}
        wait_until(lambda: world.is_equal)


def test_a_shadow_does_not_stand_in_for_a_slave(world: World) -> None:
    slave = world.broker("slave", address=own_address(), brokerId="1", brokerRole="SLAVE")
    with slave, world.shadow():
        wait_until(lambda: send(world, 1)[0][0] == "SEND_OK")
        assert {status for status, _ in send(world, 20)} == {"SEND_OK"}
        wait_until(lambda: world.is_equal)
        slave.kill()
        answers = send(world, 3)
        assert {status for status, _ in answers} == {"FLUSH_SLAVE_TIMEOUT"}
        assert min(seconds for _, seconds in answers) >= SLAVE_TIMEOUT_MS / 1000
        wait_until(lambda: world.is_equal)
        slave.start()
        wait_until(lambda: send(world, 1)[0][0] == "SEND_OK")
        wait_until(lambda: world.is_equal)


@contextmanager
def load_of(world: World, answers: list[tuple[str, float]]) -> Iterator[None]:
    """Send one after the other all the while."""
    over = Event()

    def load() -> None:
        while not over.is_set():
            try:
                answers.extend(send(world, 5))
            except tandem.ClientError as error:
                answers.append((type(error).__name__, 0.0))

    thread = Thread(target=load)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def kill(shadow: subprocess.Popen[str]) -> None:
    """`kill -9` for the process that copies, and for the one that speaks."""
    subprocess.run(["pkill", "-9", "-P", str(shadow.pid)], check=True)
    shadow.kill()
    shadow.wait()


def test_who_comes_back_answers_no_put_that_waits(world: World) -> None:
    answers: list[tuple[str, float]] = []
    with load_of(world, answers):
        for _ in range(3):
            with suppress(AssertionError), world.shadow() as shadow:
                before = len(answers)
                wait_until(lambda: len(answers) >= before + 7)  # noqa: B023 - called at once
                kill(shadow)
    assert {status for status, _ in answers} == {"FLUSH_SLAVE_TIMEOUT"}
    with world.shadow():
        wait_until(lambda: world.is_equal)


def test_master_and_shadow_are_killed_under_load_and_the_copy_is_the_log(
    tmp_path: Path,
) -> None:
    try:
        world = World(classpath("pom.xml", "tools"), tmp_path)
    except NotToBeHadError as error:
        pytest.skip(str(error))
    world.master.settings["brokerRole"] = "ASYNC_MASTER"
    answers: list[tuple[str, float]] = []
    with world.name_server, world.master:
        with tandem.BlockingAdmin(world.servers) as admin:
            wait_until(lambda: "broker-a" in admin.cluster_info().broker_addr_table)
            admin.create_topic("Orders", queue_nums=4)
        with load_of(world, answers):
            with suppress(AssertionError), world.shadow() as shadow:
                wait_until(lambda: len(answers) > 2_000)
                kill(shadow)
            with world.shadow():
                before = len(answers)
                wait_until(lambda: len(answers) > before + 1_000)
                world.master.kill()
                world.master.start()
                before = len(answers)
                wait_until(lambda: len(answers) > before + 1_000)
        with world.shadow("--until-caught-up") as shadow:
            assert shadow.wait(60) == 0
        assert world.is_equal
        stored = sum(status == "SEND_OK" for status, _ in answers)
        assert stored > 2_000
        # RocketMQ takes the copy for a store of its own.
        world.master.kill()
        settings = {"storePathRootDir": str(world.copy), "maxHashSlotNum": "5000000"}
        settings |= {"storePathCommitLog": f"{world.copy}/commitlog", "maxIndexNum": "20000000"}
        with world.broker("opened", **settings):
            with tandem.BlockingAdmin(world.servers) as admin:
                wait_until(lambda: "broker-a" in admin.cluster_info().broker_addr_table)
            with tandem.BlockingPullConsumer(world.servers, "audit") as audit:
                found = [message.body for message in audit.messages("Orders", until_end=True)]
        assert len(found) >= stored
