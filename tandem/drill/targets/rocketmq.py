"""Real RocketMQ as a target: name servers, controllers in their processes, and three brokers."""

import secrets
import signal
import socket
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Final

import msgspec
import trio

from tandem.client import Admin, ClientError
from tandem.client.cluster_access import ClusterAccess
from tandem.cluster.spec import NodeSpec
from tandem.cluster_file.coordinator_settings import CoordinatorSettings
from tandem.drill.breakable import Cluster
from tandem.drill.errors import MissingRequirementError, Requirement, TargetError
from tandem.drill.machines import Machines
from tandem.drill.plan import Plan, TargetFacts
from tandem.drill.preflight import Group, can_listen
from tandem.drill.recording import Recording
from tandem.drill.scenario import LOOK_SECONDS, NodeFailedError, NotPossibleError
from tandem.drill.scenario_file import FOLDER, Scenario, choose
from tandem.drill.sentences.sentence import Fault
from tandem.drill.targets.java_program import JavaProgram
from tandem.drill.targets.rocketmq_consumers import are_groups_played, consumer_contract_of
from tandem.drill.targets.rocketmq_contract import contract_of
from tandem.drill.targets.rocketmq_jars import Jars, find_java, unknown_settings
from tandem.drill.targets.rocketmq_layout import GROUP, NAME_SERVER, NODE_COUNT, Layout, Mode
from tandem.drill.targets.rocketmq_watch import (
    WatchedBrokers,
    as_given,
    wait_for_topic,
    watch_broker,
    watch_controllers,
)
from tandem.drill.targets.target import Ground, Running, Task
from tandem.drill.versions import NO_OTHER_VERSION
from tandem.drill.watched_group import WatchedGroup

NAMESRV: Final = "org.apache.rocketmq.namesrv.NamesrvStartup"
BROKER: Final = "org.apache.rocketmq.broker.BrokerStartup"

START_SECONDS_MAX: Final = 400.0
"""For all programs together: Java on a machine with too much to do."""

ATTEMPT_MS: Final = 5_000
"""A master waits 3 s for slaves (`slaveTimeout`) before it answers."""

SEND_SECONDS_MAX: Final = 120.0
PATIENCE: Final = 6.0
"""A broker of three that start at once took 90 s on two cores that had much else to do."""

HEARTBEAT_MS: Final = 10_000
"""`controllerHeartBeatTimeoutMills`: after which a controller takes a silent broker for dead."""

SETTLE_SECONDS: Final = 6.0
"""A broker notes which transactions are over up to 3 s later (`transactionOpBatchInterval`): all
logs have to have that before the first broker is stopped."""

TOPIC_COPY_SECONDS: Final = 120.0
"""Without a controller a slave copies new topics once a minute, by
BrokerController.initializeBrokerScheduledTasks: it is given two of them."""

SLAVE_TIMEOUT_MS: Final = 3_000
MESSAGE_BYTES_MAX: Final = 4 << 20
BASES_TRIED_MAX: Final = 20

_OPENED: Final = ("java.nio", "sun.nio.ch", "jdk.internal.ref")
_HEAP: Final = {
    BROKER: ("-Xms256m", "-Xmx512m", "-XX:MaxDirectMemorySize=512m"),
    NAMESRV: ("-Xms64m", "-Xmx256m", "-XX:MaxDirectMemorySize=256m"),
}
_QUIET_4: Final = '<configuration><root level="OFF"/></configuration>'


class RocketMQTarget:
    """Three brokers of one group, with settings of the user."""

    name: Final = "rocketmq"
    others: Final[Sequence[Group]] = ()
    faults: Final = frozenset((Fault.KILL, Fault.STOP, Fault.FREEZE, Fault.SLOW_DISK, Fault.CLOCK))
    max_message_size_bytes: Final = MESSAGE_BYTES_MAX

    def __init__(
        self, jars: Jars, mode: Mode, settings: dict[str, str], name_server_count: int = 1
    ) -> None:
        """Decide where it will be.

        Raises:
            MissingRequirementError: there is no Java, no controller in these jars, no such setting,
                or no free address.
        """
        if mode is Mode.CONTROLLER and not jars.has_controller:
            raise MissingRequirementError(
                f"RocketMQ {jars.version} is given without rocketmq-controller-{jars.version}.jar,"
                " so it elects no master; give --mode sync-master, or a 5.x with that jar",
                Requirement.ROCKETMQ,
            )
        unknown = unknown_settings(jars, settings)
        if unknown:
            raise MissingRequirementError(
                f"RocketMQ {jars.version} knows no setting {', '.join(unknown)}; correct --set",
                Requirement.ROCKETMQ,
            )
        self._java = find_java()
        self._jars = jars
        self._layout = _free_layout(mode, settings, name_server_count)
        self._contract = contract_of(mode, settings, is_4=jars.is_4)
        self._of_consumers = consumer_contract_of(
            mode, settings, not_promised=self._contract.not_promised
        )
        without = self._contract.status_without_slaves
        self.group = msgspec.structs.replace(self._layout.group, status_without_slaves=without)

    def choose(self, names: Sequence[str], *, short: bool) -> list[Scenario]:
        """Return what is to be played; raises BadScenarioError."""
        kind = self.group.kind
        remedy = "give another --mode: `controller` is as fenced, the others are classic"
        return choose(names, kind, short=short, folder=FOLDER / "rocketmq", remedy=remedy)

    def check(self, scenarios: Sequence[Scenario]) -> None:
        """Raise MissingRequirementError if ports were taken since."""
        busy = _busy(self._layout)
        if busy:
            raise _in_use(busy)

    def lay_out(self, out: Path, scenarios: Sequence[Scenario]) -> Ground:
        """Write nothing yet: each program gets its properties when it is first started."""
        self._layout = msgspec.structs.replace(self._layout, data=out / "data")
        contract = self._contract
        nodes = self._layout.group.nodes
        self.group = msgspec.structs.replace(self.group, nodes=nodes)
        return Ground(
            config=out / "data",
            cluster=self.name,
            coordinator=CoordinatorSettings(lease_ttl_ms=HEARTBEAT_MS),
            slave_timeout_ms=SLAVE_TIMEOUT_MS,
            stores={node.name: node.directory / "store" for node in nodes},
            facts=TargetFacts(
                name=self.name,
                version=f"{self._jars.version} {self._layout.mode}",
                settings=dict(self._layout.settings),
                name_servers=self._layout.name_servers,
                contract=contract.send_ok,
                rules={**contract.rules, **self._of_consumers.rules},
                not_promised={**contract.not_promised, **self._of_consumers.not_promised},
                attempt_ms=ATTEMPT_MS,
                send_seconds_max=SEND_SECONDS_MAX,
                refusal_is_clear=False,
                patience=PATIENCE,
                has_consumers=are_groups_played(self._layout.settings, is_4=self._jars.is_4),
                has_timers=self._layout.settings.get("timerWheelEnable", "true") == "true",
                settle_seconds=SETTLE_SECONDS,
                topic_copy_seconds=TOPIC_COPY_SECONDS,
            ),
        )

    @asynccontextmanager
    async def running(self, plan: Plan, recording: Recording) -> AsyncIterator[Running]:
        """Have the name servers and all brokers up.

        Raises:
            TargetError: one of them does not start, or does not take its settings.
        """
        programs = self._programs(plan.out, plan.machines)
        nodes = RocketMQNodes(programs, recording.watched, recording.clock.now)
        try:
            async with AsyncExitStack() as stack:
                access = ClusterAccess(plan.name_servers)
                admin = await stack.enter_async_context(Admin(access))
                await self._start(programs, admin)
                brokers = WatchedBrokers(plan.group.nodes, recording.replication, recording.watched)
                watchers: list[Task] = []
                for node in plan.group.nodes:
                    # One connection set each: a frozen broker must not hold up the others.
                    asker = await stack.enter_async_context(Admin(access))
                    watchers.append(partial(watch_broker, asker, node, brokers, recording.clock))
                if recording.watched is not None:
                    controllers = self._layout.controllers
                    watchers.append(
                        partial(watch_controllers, controllers, GROUP, brokers, recording.clock)
                    )
                yield RunningRocketMQ(
                    addresses=[node.client_address for node in plan.group.nodes],
                    nodes=nodes,
                    access=access,
                    admin=admin,
                    watchers=watchers,
                )
                with trio.move_on_after(START_SECONDS_MAX):
                    await _stop_all(programs)
        finally:
            for program in programs.values():
                program.kill_now()
            for program in programs.values():
                program.reap()

    def _programs(self, out: Path, machines: Machines | None = None) -> dict[str, JavaProgram]:
        """All of them, name servers first; each with its properties, brokers on machines."""
        layout = self._layout
        found = {
            name: self._program(name, NAMESRV, layout.name_server_properties(name), out)
            for name in layout.name_server_hosts
        }
        for node in layout.group.nodes:
            properties = layout.broker_properties(node)
            given = {} if machines is None else machines.environment(node.name)
            found[node.name] = self._program(node.name, BROKER, properties, out, given)
        return found

    def _program(
        self,
        name: str,
        main_class: str,
        properties: dict[str, str],
        out: Path,
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> JavaProgram:
        home, logs = out / "data" / name, out / "data" / "logs"
        (home / "conf").mkdir(parents=True, exist_ok=True)
        if self._jars.is_4:
            # It does not start without.
            for kind in ("namesrv", "broker"):
                (home / "conf" / f"logback_{kind}.xml").write_text(_QUIET_4)
        given = home / "given.properties"
        given.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        command = [
            *("env", *(f"{key}={value}" for key, value in environment.items())),
            *(self._java, *_HEAP[main_class], "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
            *(
                word
                for each in _OPENED
                for word in ("--add-opens", f"java.base/{each}=ALL-UNNAMED")
            ),
            *("--add-exports", "java.base/jdk.internal.ref=ALL-UNNAMED"),
            # A machine whose disk is fuller than it likes would refuse every message.
            "-Drocketmq.broker.diskSpaceWarningLevelRatio=0.99",
            "-Drocketmq.broker.diskSpaceCleanForciblyRatio=0.99",
            *(f"-Duser.home={logs / name}", f"-Drocketmq.home.dir={home}"),
            *("-cp", self._jars.class_path, main_class, "-c", str(given)),
        ]
        return JavaProgram(name, command, logs / f"{name}.log", home)

    async def _start(self, programs: dict[str, JavaProgram], admin: Admin) -> None:
        """Start all name servers at once, then all brokers."""
        try:
            with trio.fail_after(START_SECONDS_MAX):
                names = [node.name for node in self.group.nodes]
                for together in (self._layout.name_server_hosts, names):
                    async with trio.open_nursery() as nursery:
                        for name in together:
                            nursery.start_soon(programs[name].start)
                for node in self.group.nodes:
                    await self._until_it_serves(admin, node)
        except* NodeFailedError as errors:
            raise TargetError(str(_first(errors))) from errors
        except* trio.TooSlowError as error:
            up = [name for name, program in programs.items() if program.runs]
            raise TargetError(
                f"RocketMQ was not up within {START_SECONDS_MAX:g} s (these run:"
                f" {', '.join(up) or 'none'}); its programs' logs say more; try again with less"
                " beside it"
            ) from error

    async def _until_it_serves(self, admin: Admin, node: NodeSpec) -> None:
        """Wait for an answer, and compare the settings that it says it has."""
        said: Mapping[str, str] | None = None
        while said is None:
            try:
                said = await admin.broker_config(node.client_address)
            except ClientError:
                await trio.sleep(LOOK_SECONDS)
        others = as_given(self._layout.settings, said)
        if others:
            raise TargetError(
                f"{node.name} of RocketMQ {self._jars.version} did not take {'; '.join(others)}:"
                " what it promises would not be what the drill judges by; correct --set"
            )


class RunningRocketMQ(Running):
    """Slaves fetch new topics every few seconds."""

    def __init__(
        self,
        *,
        addresses: Sequence[str],
        nodes: Cluster,
        access: ClusterAccess,
        admin: Admin,
        watchers: Sequence[Task],
    ) -> None:
        """Take the `addresses` of the brokers beside what every target has."""
        super().__init__(nodes=nodes, network=None, access=access, admin=admin, watchers=watchers)
        self._addresses = addresses

    async def wait_for_topic(self, topic: str) -> None:
        """Return when every broker has the topic."""
        for address in self._addresses:
            await wait_for_topic(address, topic)


class RocketMQNodes:
    """The brokers, to be hurt. What an operator of ours may order does not exist here."""

    def __init__(
        self,
        programs: dict[str, JavaProgram],
        watched: WatchedGroup | None,
        now: Callable[[], float],
    ) -> None:
        self._programs = programs
        self._watched = watched
        self._now = now

    async def start(self, node: str) -> None:
        """Start a broker that is not running; returns once it says that it serves."""
        await self._program(node).start()

    async def stop(self, node: str) -> None:
        """Stop a broker with SIGTERM; returns when it is gone."""
        await self._program(node).stop()
        self._ended(node)

    async def kill(self, node: str) -> None:
        """End a broker with SIGKILL; returns when it is gone."""
        await self._program(node).kill()
        self._ended(node)

    async def freeze(self, node: str) -> None:
        """Stop the process of a broker with SIGSTOP."""
        await trio.lowlevel.checkpoint()
        self._program(node).signal(signal.SIGSTOP)

    async def wake(self, node: str) -> None:
        """Let a frozen process go on."""
        await trio.lowlevel.checkpoint()
        self._program(node).signal(signal.SIGCONT)

    async def resign(self, node: str) -> None:
        """Say that it cannot be done."""
        raise NotPossibleError("a broker of RocketMQ takes no order to resign")

    async def promote(self, node: str) -> None:
        """Say that it cannot be done."""
        raise NotPossibleError("the drill names no master of RocketMQ")

    async def by_hand(self, *order: str) -> str:
        """Say that it cannot be done."""
        raise NotPossibleError("`tandem ha` gives no orders to RocketMQ")

    def upgrade(self, node: str) -> None:
        """Say that it cannot be done."""
        raise NotPossibleError(NO_OTHER_VERSION)

    def go_back(self, node: str) -> None:
        """Say that it cannot be done."""
        raise NotPossibleError(NO_OTHER_VERSION)

    def runs(self, node: str) -> bool:
        """Whether a broker has a process."""
        return self._program(node).runs

    def unexpected_exits(self) -> list[str]:
        """Programs that ended although nobody stopped them."""
        return [how for each in self._programs.values() if (how := each.unexpected_exit)]

    def _program(self, node: str) -> JavaProgram:
        if node not in self._programs:
            raise NotPossibleError(f"the drill does not touch {node} of RocketMQ")
        return self._programs[node]

    def _ended(self, node: str) -> None:
        if self._watched is not None:
            self._watched.node_ended(self._now(), node)


async def _stop_all(programs: dict[str, JavaProgram]) -> None:
    """Stop all brokers at once, kindly, then the name servers."""

    async def stop(program: JavaProgram) -> None:
        try:
            await program.stop()
        except NodeFailedError:
            program.kill_now()  # it was gone already, or it is now

    name_servers = {name for name in programs if name.startswith(NAME_SERVER)}
    for together in (programs.keys() - name_servers, name_servers):
        async with trio.open_nursery() as nursery:
            for name in together:
                if programs[name].runs:
                    programs[name].wake_if_frozen()
                    nursery.start_soon(stop, programs[name])


def _free_layout(mode: Mode, settings: dict[str, str], name_server_count: int) -> Layout:
    """Return a layout at addresses that nobody uses.

    Raises:
        MissingRequirementError: there is none.
    """
    busy: list[str] = []
    for _ in range(BASES_TRIED_MAX):
        layout = Layout(
            mode=mode,
            settings=settings,
            base=f"127.{1 + secrets.randbelow(254)}.{secrets.randbelow(256)}",
            ha_ports=_free_ports(NODE_COUNT),
            data=Path("data"),
            name_server_count=name_server_count,
        )
        busy = _busy(layout)
        if not busy:
            return layout
    raise _in_use(busy)


def _busy(layout: Layout) -> list[str]:
    return [f"{host}:{port}" for host, port in layout.ports if not can_listen(host, port)]


def _in_use(busy: Sequence[str]) -> MissingRequirementError:
    return MissingRequirementError(
        f"{', '.join(busy)}: in use by another process, on all addresses; stop it: the drill's"
        " RocketMQ listens there",
        Requirement.FREE_PORTS,
        busy,
    )


def _free_ports(count: int) -> list[int]:
    """Return ports that nobody listens on at the moment, on any address."""
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("", 0))
        return [probe.getsockname()[1] for probe in probes]
    finally:
        for probe in probes:
            probe.close()


def _first(errors: BaseExceptionGroup[NodeFailedError]) -> NodeFailedError:
    first = errors.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first
