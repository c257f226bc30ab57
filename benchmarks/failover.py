"""How long does nobody get an answer when the master of a fenced group is lost?

    python benchmarks/failover.py [--kills 50] [--kind kill|freeze|partition] [--json FILE]

A cluster of three nodes, each a process, with the embedded coordinator and the settings of the
default cluster file; a few producers that send one message after the other, each with its own
connections (`resend_until_ok`, default limits). Then, again and again: the master is

    kill       ended with SIGKILL; the supervisor, in this process, sees it end
    freeze     stopped with SIGSTOP, for longer than its lease, then woken
    partition  cut off from nodes and coordinator, not from clients; healed when another is master

and everybody is waited for until all three are in sync again. For each round:

    next SEND_OK   from the signal to the first SEND_OK that the next master gives
    gap            the longest time without any SEND_OK, over all producers, around the signal
    leader gone    from the signal until the coordinator has no leader any more
    elected        ... until it has the next epoch
    open           ... until the next master says that it takes messages (asked every 10 ms)

At the end all queues are read: what was answered SEND_OK must be there. Exit status 1 if it is not.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import tempfile
from collections import Counter
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import msgspec
import trio

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tandem.client import Admin, ClientError, Producer, PullConsumer, SendResult, SendStatus
from tandem.cluster.local_cluster import LocalCluster
from tandem.cluster.spec import read_spec
from tandem.coordinator.client import EtcdClient
from tandem.coordinator.interface import CoordinatorError
from tandem.drill.fault_proxy import FaultProxy, pairs_of
from tandem.drill.proxied_pair import FlowRule, ProxiedPair
from tandem.wire.group_state import GroupKeys, decode_state
from tandem.wire.message import Message, decode_offset_msg_id
from tandem.wire.message_properties import PROPERTY_UNIQUE_KEY

TOPIC = "Failover"
GROUP = "broker-a"
NETWORK = "127.37.0"
PROXY_NETWORK = "127.38"
PORTS = (10_911, 10_912, 9_876, 10_913)
COORDINATOR = (f"{NETWORK}.254", 10_920)
NODES = [f"{GROUP}-{number}" for number in range(3)]
ADDRESSES = {name: f"{NETWORK}.{number + 1}" for number, name in enumerate(NODES)}
KINDS = ("kill", "freeze", "partition")
BODY = b"x" * 256
STATUS_SECONDS = 0.01
SEEN_SECONDS_MAX = 30.0
IN_SYNC_SECONDS_MAX = 60.0
SETTLE_SECONDS = 0.5
CALM_SECONDS = 1.7
"""Up to so long after the rest: a fault shall hit any moment between two renewals of a lease."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for."""

    kind: str
    kills: int
    producers: int
    rate: float
    lease_ms: int
    seed: int
    json: Path | None
    directory: Path | None


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """One loss of a master. Seconds; all but `gap` from the signal."""

    lost: str
    next: str
    leader_gone: float
    elected: float
    open: float
    next_send_ok: float
    gap: float
    in_sync: float
    """Until all nodes were in sync again, the rest before it included."""


# The cluster


def write_config(directory: Path, options: Options, pairs: list[ProxiedPair]) -> Path:
    """Write the cluster file; JSON is YAML."""
    reach: dict[str, dict[str, str]] = {name: {} for name in NODES}
    for pair in pairs:
        reach[pair.source][pair.target] = pair.listen_address
    content = {
        "cluster": {"name": "Failover", "data_directory": "data"},
        "coordinator": {
            "address": COORDINATOR[0],
            "port": COORDINATOR[1],
            "lease_ttl_ms": options.lease_ms,
        },
        "groups": {GROUP: {"kind": "fenced"}},
        "nodes": [
            {
                "name": name,
                "group": GROUP,
                "broker_id": number,
                "address": ADDRESSES[name],
                **({"reach": reach[name]} if pairs else {}),
            }
            for number, name in enumerate(NODES, start=1)
        ],
    }
    file = directory / "cluster.yaml"
    file.write_bytes(msgspec.json.format(msgspec.json.encode(content)))
    return file


def proxied_pairs() -> list[ProxiedPair]:
    """All connections between nodes, and to the coordinator, go through a proxy of their own."""
    nodes = [(name, ADDRESSES[name], PORTS) for name in NODES]
    return list(pairs_of(PROXY_NETWORK, nodes, (COORDINATOR[0], (COORDINATOR[1],))))


class Records:
    """What the coordinator says of the group, and since when. Followed by a watch of its own."""

    def __init__(self, cluster: str) -> None:
        self.keys = GroupKeys(cluster, GROUP)
        self.epoch = 0
        self.master = ""
        self.in_sync: set[str] = set()
        self.leader_gone_at = 0.0
        self.elected_at = 0.0
        self.changed = trio.Event()

    async def follow(self, coordinator: EtcdClient) -> None:
        """Read and watch until cancelled."""
        while True:
            with suppress(CoordinatorError):
                snapshot = await coordinator.read(self.keys.prefix)
                for key, value in snapshot.values.items():
                    self._take(key, value.value)
                async with coordinator.watch(self.keys.prefix, snapshot.revision + 1) as events:
                    async for round_ in events:
                        for event in round_:
                            self._take(event.key, event.value.value if event.value else None)
            await trio.sleep(0.1)

    def _take(self, key: str, value: bytes | None) -> None:
        now = trio.current_time()
        if key == self.keys.leader and value is None:
            self.leader_gone_at = now
        elif key == self.keys.state and value is not None:
            state = decode_state(value)
            if state.epoch > self.epoch:
                self.elected_at = now
            self.epoch, self.master, self.in_sync = state.epoch, state.master, set(state.isr)
        self.changed.set()
        self.changed = trio.Event()

    async def until_all_in_sync(self) -> None:
        """Wait for all nodes."""
        with trio.fail_after(IN_SYNC_SECONDS_MAX):
            while not self.in_sync >= set(NODES):
                await self.changed.wait()

    async def until_newer(self, epoch: int) -> None:
        """Wait for an epoch above `epoch`."""
        while self.epoch <= epoch:
            await self.changed.wait()


# The load


class Load:
    """Producers and what was answered to them."""

    def __init__(self) -> None:
        self.acknowledged: set[str] = set()
        self.oks: list[tuple[float, str]] = []
        """When a SEND_OK came, and from which address."""
        self.failures: Counter[str] = Counter()
        self.answered = trio.Event()

    async def produce(self, name_servers: list[str], name: str, period_seconds: float) -> None:
        """Send one message after the other, at a pace, until cancelled."""
        async with Producer(name_servers, group="failover", resend_until_ok=True) as producer:
            sequence = 0
            due = trio.current_time()
            while True:
                await trio.sleep_until(due)
                due = max(due + period_seconds, trio.current_time() - period_seconds)
                key = f"{name}-{sequence:08d}"
                sequence += 1
                message = Message(TOPIC, BODY, properties={PROPERTY_UNIQUE_KEY: key})
                try:
                    self._note(key, await producer.send(message))
                except ClientError as error:
                    self.failures[type(error).__name__] += 1

    def _note(self, key: str, result: SendResult) -> None:
        if result.status is not SendStatus.SEND_OK:
            self.failures[result.status.name] += 1
            return
        self.acknowledged.add(key)
        self.oks.append((trio.current_time(), decode_offset_msg_id(result.offset_msg_id)[0].ip))
        self.answered.set()
        self.answered = trio.Event()

    async def first_from_another(self, address: str, since: float) -> float:
        """Return when the first SEND_OK came that another than this node has given."""
        seen = len(self.oks)
        while True:
            for at, ip in self.oks[seen:]:
                if ip != address and at >= since:
                    return at
            seen = len(self.oks)
            await self.answered.wait()

    def gap(self, start: float, end: float) -> float:
        """Return the longest time without a SEND_OK that ended between `start` and `end`."""
        times = [at for at, _ in self.oks]
        return max(after - before for before, after in pairwise(times) if start <= after <= end)


async def read_everything(name_servers: list[str]) -> Counter[str]:
    """Read all queues from their start; return how often each key is there."""
    found: Counter[str] = Counter()
    async with PullConsumer(name_servers, group="failover") as consumer:
        for queue in await consumer.fetch_message_queues(TOPIC):
            offset, end = 0, await consumer.max_offset(queue)
            while offset < end:
                result = await consumer.pull(queue, offset, max_msg_nums=32)
                found.update(message.properties[PROPERTY_UNIQUE_KEY] for message in result.messages)
                offset = result.next_begin_offset
    return found


# The faults


class Failover:
    """Loses the master again and again, and measures."""

    def __init__(
        self, cluster: LocalCluster, records: Records, load: Load, admin: Admin, proxy: FaultProxy
    ) -> None:
        self._cluster = cluster
        self._records = records
        self._load = load
        self._admin = admin
        self._proxy = proxy

    async def lose_master(self, kind: str, lease_seconds: float) -> Round:
        """One round, from a healthy group to a healthy group."""
        records, load = self._records, self._load
        lost, epoch = records.master, records.epoch
        records.leader_gone_at = records.elected_at = 0.0
        signal_at = trio.current_time()
        opened_at = [0.0]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._hurt, kind, lost)
            nursery.start_soon(self._note_open, epoch, opened_at)
            with trio.fail_after(SEEN_SECONDS_MAX):
                ok_at = await load.first_from_another(ADDRESSES[lost], signal_at)
        if kind == "freeze":
            await trio.sleep_until(signal_at + lease_seconds + 1.0)
        await trio.sleep(SETTLE_SECONDS)
        gap = load.gap(signal_at, trio.current_time())
        next_ = records.master
        await self._mend(kind, lost)
        await records.until_all_in_sync()
        return Round(
            lost=lost,
            next=next_,
            leader_gone=records.leader_gone_at - signal_at,
            elected=records.elected_at - signal_at,
            open=opened_at[0] - signal_at,
            next_send_ok=ok_at - signal_at,
            gap=gap,
            in_sync=trio.current_time() - signal_at,
        )

    async def _hurt(self, kind: str, node: str) -> None:
        if kind == "kill":
            await self._cluster.kill(node)
        elif kind == "freeze":
            self._cluster.pause(node)
        else:
            for other in (*NODES, "coordinator"):
                if other != node:
                    self._proxy.rules.change(node, other, FlowRule(stalled=True))
                    self._proxy.rules.change(other, node, FlowRule(stalled=True))

    async def _mend(self, kind: str, node: str) -> None:
        """Bring it back. One that was never ended has to learn first that it is not master."""
        if kind == "kill":
            await self._cluster.start(node)
            return
        if kind == "freeze":
            self._cluster.resume(node)
        else:
            self._proxy.rules.heal()
        with trio.fail_after(IN_SYNC_SECONDS_MAX):
            while await self._role(node) != "FOLLOWER":  # noqa: ASYNC110 - it is asked
                await trio.sleep(0.05)

    async def _note_open(self, epoch: int, opened_at: list[float]) -> None:
        """Ask the next master until it takes messages."""
        await self._records.until_newer(epoch)
        while await self._role(self._records.master) != "MASTER":  # noqa: ASYNC110 - it is asked
            await trio.sleep(STATUS_SECONDS)
        opened_at[0] = trio.current_time()

    async def _role(self, node: str) -> str:
        with suppress(ClientError), trio.move_on_after(1.0):
            status = await self._admin.fenced_status(f"{ADDRESSES[node]}:{PORTS[0]}")
            return status.role if status.role != "MASTER" or not status.refusal else "OPENING"
        return ""


# The report


def at_share(values: list[float], share: float) -> float:
    """Return the smallest value that is not below `share` of them (nearest rank)."""
    return sorted(values)[math.ceil(round(share * len(values), 6)) - 1]


def print_report(options: Options, rounds: list[Round]) -> None:
    """Print the table, in milliseconds."""
    print(
        f"\n{options.kind}, {len(rounds)} rounds, lease {options.lease_ms} ms,"
        f" {options.producers} producers, {options.rate:g} messages/s; milliseconds"
    )
    print(f"{'':<16}{'median':>9}{'p90':>9}{'p99':>9}{'max':>9}")
    for title, field in (
        ("leader gone", "leader_gone"),
        ("elected", "elected"),
        ("open", "open"),
        ("next SEND_OK", "next_send_ok"),
        ("gap", "gap"),
        ("all in sync", "in_sync"),
    ):
        values = [getattr(each, field) * 1000 for each in rounds]
        shares = "".join(f"{at_share(values, share):>9,.0f}" for share in (0.5, 0.9, 0.99, 1.0))
        print(f"{title:<16}{shares}")


async def measure(options: Options, directory: Path) -> int:
    """Run everything; return the exit status."""
    pairs = proxied_pairs() if options.kind == "partition" else []
    proxy = FaultProxy(pairs)
    config = write_config(directory, options, pairs)
    spec = await trio.to_thread.run_sync(read_spec, config)
    rng = random.Random(options.seed)
    load, records = Load(), Records(spec.name)
    rounds: list[Round] = []
    async with trio.open_nursery() as nursery:
        await nursery.start(proxy.run)
        async with LocalCluster(spec) as cluster, Admin(spec.name_servers) as admin:
            await cluster.start()
            nursery.start_soon(records.follow, cluster.coordinator_client())
            await records.until_all_in_sync()
            async with trio.open_nursery() as producers:
                for number in range(options.producers):
                    producers.start_soon(
                        load.produce,
                        spec.name_servers,
                        f"p{number}",
                        options.producers / options.rate,
                    )
                await trio.sleep(1.0)
                failover = Failover(cluster, records, load, admin, proxy)
                for number in range(options.kills):
                    await trio.sleep(SETTLE_SECONDS + rng.uniform(0.0, CALM_SECONDS))
                    done = await failover.lose_master(options.kind, options.lease_ms / 1000)
                    rounds.append(done)
                    print_round(number, done)
                await trio.sleep(SETTLE_SECONDS)
                producers.cancel_scope.cancel()
            status = await check(spec.name_servers, load)
        nursery.cancel_scope.cancel()
    print_report(options, rounds)
    if options.json:
        await trio.Path(options.json).write_bytes(
            msgspec.json.format(msgspec.json.encode({"kind": options.kind, "rounds": rounds}))
        )
    return status


def print_round(number: int, done: Round) -> None:
    """Print one line."""
    print(
        f"{number + 1:>3}  {done.lost} -> {done.next}  leader gone {done.leader_gone:6.3f}"
        f"  elected {done.elected:6.3f}  open {done.open:6.3f}"
        f"  next SEND_OK {done.next_send_ok:6.3f}  gap {done.gap:6.3f}"
        f"  in sync {done.in_sync:6.2f}",
        flush=True,
    )


async def check(name_servers: list[str], load: Load) -> int:
    """Look for what was acknowledged; return the exit status."""
    found = await read_everything(name_servers)
    missing = load.acknowledged - found.keys()
    twice = sum(count > 1 for count in found.values())
    print(
        f"\n{len(load.acknowledged):,} acknowledged, {len(found):,} in the log,"
        f" {twice} more than once, {len(missing)} missing; sends that failed:"
        f" {dict(load.failures) or 'none'}"
    )
    for key in sorted(missing)[:10]:
        print(f"  missing: {key}")
    return 1 if missing else 0


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kind", choices=KINDS, default="kill")
    parser.add_argument("--kills", type=int, default=50, help="rounds")
    parser.add_argument("--producers", type=int, default=4)
    parser.add_argument("--rate", type=float, default=200.0, help="messages a second, all together")
    parser.add_argument("--lease-ms", type=int, default=5_000)
    parser.add_argument("--seed", type=int, default=1, help="of the pauses between rounds")
    parser.add_argument("--json", type=Path, help="write every round here")
    parser.add_argument("--directory", type=Path, help="where the stores go (default: temporary)")
    options = Options(**vars(parser.parse_args()))
    with tempfile.TemporaryDirectory(prefix="tandem-failover-", dir=options.directory) as name:
        status = trio.run(measure, options, Path(name))
    sys.exit(status)


if __name__ == "__main__":
    main()
