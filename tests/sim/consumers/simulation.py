"""Runs with consumer groups: the machines and faults of either kind of group, and other users.

    start -> topics -> clients; load and faults -> heal; all clients are back
          -> until all has happened that is promised, 40 s at most -> check

Intervals and patience of clients are a tenth of RocketMQ's, and so is what brokers know of them.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Final

import msgspec
import trio

from node.tables import client_table, producer_table, queue_locks
from tandem.client.errors import ClientError
from tandem.cluster_file.cluster_config import ClusterConfig
from tests.sim.classic.cluster import ClassicCluster
from tests.sim.classic.simulation import ClassicSimulation
from tests.sim.classic.simulation import cluster_config as classic_config
from tests.sim.consumers.checker import Expectations, Kind, check, is_settled, overlaps_of_masters
from tests.sim.consumers.client import Client, ClientSlot, Place
from tests.sim.consumers.consumer import MAX_RECONSUME_TIMES, PushConsumer
from tests.sim.consumers.producer import Producer, TransactionProducer
from tests.sim.consumers.seen import Seen, Sent, Stored, Term, Transaction, stored_in
from tests.sim.consumers.settings import (
    CONSUMERS,
    ORDERLY_CONSUMERS,
    PRODUCER,
    ClassicConsumersSettings,
    FencedConsumersSettings,
    Workload,
    broker_settings,
)
from tests.sim.engine.faults import CLIENT_VERBS, Instruction
from tests.sim.engine.history import Contract, Finding, Outcome, Send
from tests.sim.engine.node import read_log
from tests.sim.engine.simulation import Result, Simulation
from tests.sim.engine.trace import Trace
from tests.sim.fenced.cluster import FencedCluster
from tests.sim.fenced.simulation import FencedSimulation
from tests.sim.fenced.simulation import cluster_config as fenced_config

TOPIC: Final = "orders"
"""Read by a group whose clients send back what fails; transactions put their messages here, too."""
ORDERLY_TOPIC: Final = "ledger"
GROUP: Final = "handlers"
ORDERLY_GROUP: Final = "bookkeepers"

SETTLE_SECONDS_MAX: Final = 40.0
LOOK_SECONDS: Final = 1.0
TOPICS_SECONDS_MAX: Final = 10.0

TENTH: Final = (
    (queue_locks, "LOCK_SECONDS", 6.0),
    (client_table, "CLIENT_EXPIRED_SECONDS", 12.0),
    (producer_table, "PRODUCER_EXPIRED_SECONDS", 12.0),
)
"""What brokers know of clients that is not in any setting."""


class ConsumersSimulation(Simulation[Any, Any, Any]):
    """One run under way. Which machines there are says the class next to this one."""

    delivers_once: ClassVar[bool] = False
    """Whether no switch of masters may repeat the delivery of a message that waited."""

    workload: Workload

    def __init__(self, *arguments: Any) -> None:  # noqa: ANN401  # those of the other base
        super().__init__(*arguments)
        self.seen = Seen()
        self._quits = False
        self._slots: dict[str, ClientSlot] = {}
        self._log_at_end: list[Stored] = []

    async def run(self) -> Result[Any, Any]:
        """Play the run and judge it."""
        with a_tenth_of_the_time():
            return await super().run()

    async def _play(self, nursery: trio.Nursery) -> None:
        for name in self.settings.node_names:
            self.cluster.start(name)
        await self._until_ready()
        self.cluster.bind_roles()
        self.load_started_at = trio.current_time()
        await self._create_topics()
        self._slots = {ip: ClientSlot(ip, self._client_at, nursery) for ip in self.workload.clients}
        for slot in self._slots.values():
            slot.start()
        healed_at = await self._load_and_faults()
        self._quits = True
        for slot in self._slots.values():
            if not slot.is_dark:
                slot.start()
        await self._mend(healed_at)
        with trio.move_on_after(SETTLE_SECONDS_MAX):
            while not self._all_has_happened():
                await trio.sleep(LOOK_SECONDS)
        for slot in self._slots.values():
            slot.kill()

    async def _create_topics(self) -> None:
        async with self._client_machine("127.0.2.5").admin() as admin:
            for topic in (TOPIC, ORDERLY_TOPIC):
                with trio.move_on_after(TOPICS_SECONDS_MAX):
                    while True:
                        try:
                            await admin.create_topic(topic, queue_nums=self.workload.queue_nums)
                            break
                        except ClientError:
                            await trio.sleep(0.2)

    def _carry_out(self, instruction: Instruction) -> None:
        if instruction.verb not in CLIENT_VERBS:
            super()._carry_out(instruction)
            return
        slot = self._slots.get(instruction.arguments[0])
        self.trace.note("fault", str(instruction))
        if slot is None:
            return
        match instruction.verb:
            case "client-start":
                slot.start()
            case "client-kill" if slot.kill():
                self.cluster.note_hit(instruction.verb)
            case "client-vanish" if slot.vanish():
                self.cluster.note_hit(instruction.verb)

    # Clients

    def _client_at(self, ip: str, life: int) -> Client:
        place = self._place(self._chance(f"client {ip} {life}"))
        if ip in CONSUMERS:
            return PushConsumer(
                place, ip, life, group=GROUP, topic=TOPIC, is_orderly=False, fails=self._fails
            )
        if ip in ORDERLY_CONSUMERS:
            return PushConsumer(
                place,
                ip,
                life,
                group=ORDERLY_GROUP,
                topic=ORDERLY_TOPIC,
                is_orderly=True,
                fails=self._fails,
            )
        pause_seconds = self.workload.pause_seconds
        if ip == PRODUCER:
            return Producer(
                place,
                ip,
                life,
                topics=(TOPIC, ORDERLY_TOPIC),
                pause_seconds=pause_seconds,
                timed_chance=self.workload.timed_chance,
            )
        return TransactionProducer(
            place, ip, life, topics=(TOPIC,), pause_seconds=2 * pause_seconds
        )

    def _place(self, chance: random.Random) -> Place:
        nodes = {node.config.node.broker_address: node for node in self.cluster.nodes.values()}
        return Place(
            network=self.network,
            name_servers=self.cluster.name_servers(),
            broker_addresses=list(nodes),
            knowing_addresses=self._knowing_addresses(list(nodes)),
            seen=self.seen,
            trace=self.trace,
            chance=chance,
            term_of=lambda address: self._term_of(nodes[address].name),
            node_of=lambda address: nodes[address].name,
            quits=lambda: self._quits,
        )

    def _fails(self, key: str) -> int:
        """How often a message is to fail: once, a few times, or for ever."""
        chance = random.Random(f"{self.settings.seed} {key}")
        if chance.random() >= self.workload.fail_chance:
            return 0
        return chance.choice((1, 2, MAX_RECONSUME_TIMES, 1_000))

    def _all_has_happened(self) -> bool:
        """Whether all is done that is promised to be done in the end."""
        return is_settled(self.seen, self._log(), self._expected(is_complete=True))

    # The verdict

    def _expected(self, *, is_complete: bool) -> Expectations:
        return Expectations(
            groups={TOPIC: GROUP, ORDERLY_TOPIC: ORDERLY_GROUP},
            max_reconsume_times=MAX_RECONSUME_TIMES,
            transaction_topic=TOPIC,
            is_complete=is_complete,
            unaware_seconds=self._unaware_seconds(),
            forgets_unsynced=self._forgets_unsynced(),
            delivers_once=self.delivers_once,
        )

    def _log(self) -> list[Stored]:
        name = self.cluster.master_name() or self.settings.node_names[0]
        return stored_in(read_log(self.cluster.nodes[name]))

    def _judge(self) -> Result[Any, Any]:
        if overlaps_of_masters(self.seen):
            self.cluster.note_hit("two masters' locks")
        if self.seen.moves:
            self.cluster.note_hit("sent back")
        sent = self.seen.sent.values()
        self.history.sends += [_send(each, is_acknowledged=each.is_acknowledged) for each in sent]
        halves = self.seen.transactions.values()
        self.history.sends += [_send(each, is_acknowledged=each.is_prepared) for each in halves]
        return super()._judge()

    def _check(self) -> list[Finding]:
        self._note_terms()
        crashes = [Finding(Kind.CRASHED, text) for text in self.history.crashes]
        expected = self._expected(is_complete=not self._nobody_is_left())
        return [*crashes, *check(self.seen, self._log_at_end, expected)]

    async def _end(self) -> None:
        self._log_at_end = self._log()
        await super()._end()

    # What a kind of group does differently

    def _term_of(self, node: str) -> str:
        """Which time as master of a node is now."""
        raise NotImplementedError

    def _note_terms(self) -> None:
        """Note who was master when."""
        raise NotImplementedError

    def _unaware_seconds(self) -> float:
        """Return for how long a master may not know of the next one."""
        return 0.0

    def _knowing_addresses(self, addresses: list[str]) -> list[str]:
        """Return those of nodes that know where groups are, or say that they do not."""
        return addresses

    def _forgets_unsynced(self) -> bool:
        return False

    def _nobody_is_left(self) -> bool:
        return False


class ConsumersClassicCluster(ClassicCluster):
    """A master and two slaves; notes when the master begins anew, with the tables of its files."""

    def __init__(self, *arguments: Any, seen: Seen, **rest: Any) -> None:  # noqa: ANN401
        self._seen = seen
        super().__init__(*arguments, **rest)

    def start(self, name: str) -> None:
        """See `SimulatedCluster.start`."""
        life = self.nodes[name].life
        super().start(name)
        if name == self.master.name and self.master.life > life:
            self._seen.lost_memory_at.append(trio.current_time())


class ClassicConsumersSimulation(ConsumersSimulation, ClassicSimulation):
    """At a master with two slaves."""

    def __init__(self, settings: ClassicConsumersSettings, trace: Trace) -> None:
        super().__init__(settings, trace)
        self.workload = settings.workload

    def _new_cluster(self, nursery: trio.Nursery) -> ConsumersClassicCluster:
        return ConsumersClassicCluster(
            with_workload(classic_config(self.settings), self.workload),
            self.history,
            network=self.network,
            chance=self._chance("cluster"),
            trace=self.trace,
            nursery=nursery,
            seen=self.seen,
        )

    def _term_of(self, node: str) -> str:
        return f"{node}:{self.cluster.nodes[node].life}"

    def _note_terms(self) -> None:
        self.seen.terms.append(Term(self.cluster.master.name, 0.0))

    def _knowing_addresses(self, addresses: list[str]) -> list[str]:
        return addresses[:1]  # slaves say what they have copied last

    def _forgets_unsynced(self) -> bool:
        return bool(self.cluster.master_lost_cache)


class FencedConsumersSimulation(ConsumersSimulation, FencedSimulation):
    """At a fenced group."""

    delivers_once = True

    def __init__(self, settings: FencedConsumersSettings, trace: Trace) -> None:
        super().__init__(settings, trace)
        self.workload = settings.workload

    def _new_cluster(self, nursery: trio.Nursery) -> FencedCluster:
        return FencedCluster(
            with_workload(fenced_config(self.settings), self.workload),
            self.history,
            network=self.network,
            chance=self._chance("cluster"),
            trace=self.trace,
            nursery=nursery,
            is_supervised=self.settings.is_supervised,
        )

    def _term_of(self, node: str) -> str:
        terms = sum(opening.node == node for opening in self.history.openings)
        return f"{node}:{self.cluster.nodes[node].life}:{terms}"

    def _note_terms(self) -> None:
        self.seen.terms += [
            Term(opening.node, opening.at_seconds)
            for opening in self.history.openings
            if opening.is_elected
        ]

    def _unaware_seconds(self) -> float:
        is_revoked = any(instruction.verb == "revoke" for instruction in self.settings.plan)
        return self.settings.lease_ttl_ms / 1000 if is_revoked else 0.0

    def _nobody_is_left(self) -> bool:
        return bool(self._is_excused)


def with_workload(config: ClusterConfig, workload: Workload) -> ClusterConfig:
    """Have the broker do soon what it does every now and then."""
    broker = broker_settings(config.broker, workload)
    return msgspec.structs.replace(config, broker=broker)


def _send(each: Sent | Transaction, *, is_acknowledged: bool) -> Send:
    return Send(
        key=each.key,
        body_crc=0,
        contract=Contract.REPLICATED,
        outcome=Outcome.OK if is_acknowledged else Outcome.UNKNOWN,
        invoked_at=each.invoked_at,
        ended_at=each.ended_at,
    )


@contextmanager
def a_tenth_of_the_time() -> Iterator[None]:
    """Have brokers forget locks and clients ten times sooner."""
    kept = [(module, name, getattr(module, name)) for module, name, _ in TENTH]
    for module, name, seconds in TENTH:
        setattr(module, name, seconds)
    try:
        yield
    finally:
        for module, name, seconds in kept:
            setattr(module, name, seconds)
