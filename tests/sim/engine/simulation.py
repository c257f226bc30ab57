"""One run: a group, its users, a plan of faults, healing, and the verdict of a checker.

    start  ->  load and faults  ->  heal  ->  mend  ->  probe  ->  catch up  ->  drain  ->  check
              (plan of the seed)            (classic)

The seed decides everything: what the group is like, the load, the faults, every delay, and the
order in which trio runs its tasks. Streams of chance are kept apart, so that a scenario can replace
the plan and leave the rest as it was.

`Simulation` is that sequence. What a kind of group does differently at one of the stations is in
the methods of its last part, which `classic.simulation` and `fenced.simulation` fill in.
"""

import logging
import random
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import ClassVar, Final, Generic, TypeVar

import msgspec
import trio

from node.simulated import deterministic_trio
from node.simulated.network import NetworkSettings, SimulatedNetwork
from node.simulated.virtual_clock import Timeline
from tandem.client.admin import Admin
from tandem.client.errors import ClientError
from tests.sim.engine.actions import ACTIONS
from tests.sim.engine.cluster import NodeLogHandler, SimulatedCluster
from tests.sim.engine.faults import Instruction
from tests.sim.engine.history import Finding, History, Outcome
from tests.sim.engine.settings import Settings
from tests.sim.engine.trace import PrintLine, Trace
from tests.sim.engine.workload import (
    ClientMachine,
    FollowingReader,
    GroupReader,
    ProducerProfile,
    ReaderProfile,
    SendingProducer,
    drain,
)

LOGGERS: Final = ("node", "ha", "store", "tandem")

CATCH_UP_SECONDS: Final = 10.0
LOOK_SECONDS_MAX: Final = 2.0
"""Whoever asks a node how replication is waits so long for an answer."""

FINDINGS_SHOWN_MAX: Final = 20

S = TypeVar("S", bound=Settings)
C = TypeVar("C", bound=SimulatedCluster)
H = TypeVar("H", bound=History)


class Result(msgspec.Struct, Generic[S, H], kw_only=True):
    """What became of a run."""

    settings: S
    findings: list[Finding]
    digest: str
    event_count: int
    history: H
    log_lines: list[str]
    """Lines of WARNING and above, with node and time."""
    virtual_seconds: float
    load_started_at: float
    hit: dict[str, int]
    """Faults that did something, and how often."""
    roles: dict[str, str]
    """Names of nodes by the role that scenarios call them by."""
    switches: int = 0
    """How often another epoch began."""
    is_excused: bool = False
    """No electable replica was left."""

    def report(self) -> str:
        """What a person needs to look into it: the verdict, the plan, the words of the nodes."""
        settings = self.settings
        replay = f"replay: scripts/simulate {settings.option}{settings.name} --trace"
        lines = [self.summary(), replay, settings.terms(), "plan:"]
        lines += [f"    {instruction}" for instruction in settings.plan]
        lines += ["warnings of the nodes:", *(f"    {line}" for line in self.log_lines)]
        shown = self.findings[:FINDINGS_SHOWN_MAX]
        lines += [f"    {finding.kind.name}: {finding.text}" for finding in shown]
        lines.append(f"{len(self.findings)} findings" if self.findings else "all promises kept")
        return "\n".join(lines)

    def summary(self) -> str:
        """One line about what happened."""
        counts = {
            outcome.name: sum(send.outcome is outcome for send in self.history.sends)
            for outcome in Outcome
        }
        sends = ", ".join(f"{name} {count}" for name, count in counts.items())
        epoch = f" epoch {self.switches}," if self.switches else ""
        return (
            f"{self.settings.name}: {sends}, {len(self.history.reads)} read,{epoch}"
            f" {self.virtual_seconds:.1f} s, {self.event_count} events, trace {self.digest}"
        )


class Simulation(Generic[S, C, H]):
    """One run under way."""

    actions: ClassVar[Mapping[str, Callable[..., None]]] = ACTIONS
    reader: ClassVar[ReaderProfile]
    look_seconds: float
    """Between two rounds in which every node is asked how replication is."""
    drain_retry_seconds: ClassVar[float | None] = None
    """None: when all is well, every queue can be pulled at the first try."""

    def __init__(self, settings: S, trace: Trace, history: H) -> None:
        self.settings = settings
        self.trace = trace
        self.history = history
        self.cluster: C
        self.network: SimulatedNetwork
        self.virtual_seconds = 0.0
        self.load_started_at = 0.0
        self._findings: list[Finding] = []
        self._readers = trio.CancelScope()

    def _chance(self, name: str) -> random.Random:
        return random.Random(f"{name} {self.settings.seed}")

    async def run(self) -> Result[S, H]:
        """Play the run and judge it."""
        async with trio.open_nursery() as nursery:
            timeline = Timeline()
            nursery.start_soon(timeline.run)
            self.network = SimulatedNetwork(
                timeline,
                self._chance("network"),
                settings=NetworkSettings(delay_seconds_max=self.settings.delay_seconds_max),
                on_event=lambda event: self.trace.note("net", event),
            )
            self.cluster = self._new_cluster(nursery)
            with captured_logs(NodeLogHandler(self.cluster, self.trace)):
                await self._play(nursery)
                self.virtual_seconds = trio.current_time()
                await self._end()
            nursery.cancel_scope.cancel()
        return self._judge()

    async def _play(self, nursery: trio.Nursery) -> None:
        for name in self.settings.node_names:
            self.cluster.start(name)
        await self._until_ready()
        self.cluster.bind_roles()
        for observer in self._observers():
            nursery.start_soon(observer)
        self._group = GroupReader(
            self.reader,
            self._client_machine("127.0.2.1"),
            chance=self._chance("reader"),
            history=self.history,
        )
        nursery.start_soon(self._read)
        self.load_started_at = trio.current_time()
        healed_at = await self._load_and_faults()
        await self._probe(await self._mend(healed_at))
        with trio.move_on_after(self._catch_up_seconds()):
            while not self._are_equal():
                await trio.sleep(0.05)
        self._readers.cancel()
        await self._drain()

    # Load and faults

    async def _load_and_faults(self) -> float:
        """Heal while the last sends are still under way; return when that was."""
        stop = trio.Event()
        start = trio.current_time()
        async with trio.open_nursery() as load:
            for profile in self.settings.producers:
                load.start_soon(self._producer(profile).run, stop, self._quiet_until)
            for instruction in self.settings.plan:
                await trio.sleep_until(start + instruction.at_seconds)
                self._carry_out(instruction)
            await trio.sleep_until(start + self.settings.load_seconds)
            stop.set()
            self.cluster.heal()
            return trio.current_time()

    def _quiet_until(self) -> float:
        return self.cluster.quiet_until

    def _carry_out(self, instruction: Instruction) -> None:
        """Do what a line of a plan says, to the nodes that roles mean now."""
        names = tuple(map(self.cluster.resolved_name, instruction.arguments))
        resolved = Instruction(instruction.at_seconds, instruction.verb, names)
        self.trace.note("fault", str(resolved))
        self.actions[resolved.verb](self.cluster, *names)

    def _client_machine(self, ip: str) -> ClientMachine:
        servers = self.cluster.name_servers()
        chance = self._chance(f"client {ip}")
        chance.shuffle(servers)
        salt = chance.getrandbits(32)
        return ClientMachine(self.network.machine(ip), servers, salt, self.settings.tls)

    def _producer(self, profile: ProducerProfile) -> SendingProducer:
        return SendingProducer(
            profile,
            self._client_machine(profile.ip),
            chance=self._chance(profile.name),
            history=self.history,
            trace=self.trace,
        )

    # Readers

    async def _read(self) -> None:
        following = FollowingReader(
            self._client_machine("127.0.2.2"),
            retry_seconds=self.reader.retry_seconds,
            history=self.history,
        )
        with self._readers:
            async with trio.open_nursery() as readers:
                for user in (self._group.run, following.run, self._look, *self._other_users()):
                    readers.start_soon(user)

    async def _look(self) -> None:
        """Ask every node now and then how replication is, as `tandem ha status` does."""
        async with self._client_machine("127.0.2.4").admin() as admin:
            while True:
                for node in self.cluster.nodes.values():
                    with suppress(ClientError), trio.move_on_after(LOOK_SECONDS_MAX):
                        await self._ask_status(admin, node.config.node.broker_address)
                await trio.sleep(self.look_seconds)

    # After healing

    async def _probe(self, healed_at: float) -> None:
        until = healed_at + self._send_again_seconds()
        producer = self._producer(self._probe_profile())
        await producer.probe(healed_at, until=until, is_settled=self._is_settled)

    def _are_equal(self) -> bool:
        """Whether all logs end at one place."""
        ends = {self._log_end(name) for name in self.settings.node_names}
        return len(ends) == 1

    async def _drain(self) -> None:
        fault = await drain(
            self._client_machine("127.0.2.3"), self.history, retry_seconds=self.drain_retry_seconds
        )
        if fault:
            self._findings += self._undrained(fault)

    def _judge(self) -> Result[S, H]:
        cluster, history = self.cluster, self.history
        history.crashes += [
            f"{crash.node} at {crash.at_seconds:.3f}: {crash.text}"
            for crash in cluster.crashes
            if not crash.excused
        ]
        lines = [f"{line.at_seconds:.3f} {line.node} {line.text}" for line in cluster.log_lines]
        history.crashes += [
            text for text, line in zip(lines, cluster.log_lines, strict=True) if line.has_traceback
        ]
        return Result(
            settings=self.settings,
            findings=[*self._findings, *self._check()],
            digest=self.trace.digest,
            event_count=self.trace.event_count,
            history=history,
            log_lines=lines,
            virtual_seconds=self.virtual_seconds,
            load_started_at=self.load_started_at,
            hit=dict(cluster.hit),
            roles=cluster.roles,
        )

    # What a kind of group does differently

    def _new_cluster(self, nursery: trio.Nursery) -> C:
        """Return the machines of the group."""
        raise NotImplementedError

    async def _until_ready(self) -> None:
        """Wait from the start of the nodes until load may come."""
        raise NotImplementedError

    def _observers(self) -> Sequence[Callable[[], Awaitable[None]]]:
        """Return what watches the group from the load on until all is over."""
        return ()

    def _other_users(self) -> Sequence[Callable[[], Awaitable[None]]]:
        """Return what else users do beside sending and reading."""
        return ()

    async def _ask_status(self, admin: Admin, address: str) -> None:
        """Ask a node how replication is."""
        await admin.ha_runtime_info(address)

    async def _mend(self, healed_at: float) -> float:
        """Do after healing what only a person can do; return since when all is well."""
        return healed_at

    def _probe_profile(self) -> ProducerProfile:
        """Return who tries sends after healing."""
        raise NotImplementedError

    def _send_again_seconds(self) -> float:
        """Return how long after healing a send has to succeed."""
        raise NotImplementedError

    def _catch_up_seconds(self) -> float:
        """Return how long is waited for all logs to be equal."""
        return CATCH_UP_SECONDS

    def _is_settled(self) -> bool:
        """Whether there is nothing to wait for when sends succeed."""
        return False

    def _log_end(self, name: str) -> int:
        """Return where a node's log ends."""
        raise NotImplementedError

    def _undrained(self, fault: str) -> list[Finding]:
        """Return what it means that the queues cannot be pulled."""
        raise NotImplementedError

    async def _end(self) -> None:
        """Take down what nodes have at the end, and stop them."""

    def _check(self) -> list[Finding]:
        """Return every broken promise."""
        raise NotImplementedError


@contextmanager
def captured_logs(handler: logging.Handler) -> Iterator[None]:
    """Have the log lines of our packages go to `handler` and nowhere else."""
    kept = []
    for name in LOGGERS:
        logger = logging.getLogger(name)
        kept.append((logger, logger.level, logger.propagate))
        logger.setLevel(logging.INFO)
        logger.propagate = False
        logger.addHandler(handler)
    try:
        yield
    finally:
        for logger, level, propagate in kept:
            logger.removeHandler(handler)
            logger.setLevel(level)
            logger.propagate = propagate


def run_settings(
    simulation: Callable[[S, Trace], Simulation[S, C, H]],
    settings: S,
    *,
    print_line: PrintLine | None = None,
) -> Result[S, H]:
    """Play one run from beginning to end. `print_line` sees the trace as it grows."""

    async def play() -> Result[S, H]:
        return await simulation(settings, Trace(print_line)).run()

    try:
        return deterministic_trio.run(settings.seed, play)
    except BaseException as error:
        error.add_note(f"replay: scripts/simulate {settings.option}{settings.name} --trace")
        raise
