"""A deployed cluster as a target: a file says by which commands its nodes are hurt.

The drill finds the nodes as they are, starts what does not run, and leaves them as it found them.
Each drill has a topic of its own, and takes it away again.
"""

import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import trio

from tandem.client import Admin, BrokerError, ClientError
from tandem.client.cluster_access import ClusterAccess
from tandem.cluster.spec import NodeSpec
from tandem.cluster_file.choices import GroupKind
from tandem.cluster_file.coordinator_settings import CoordinatorSettings
from tandem.cluster_file.secret_file import read_private, read_secret
from tandem.drill.errors import BadOptionsError, TargetError
from tandem.drill.outcomes import FLUSH_SLAVE_TIMEOUT, SLAVE_NOT_AVAILABLE
from tandem.drill.plan import TOPIC, Plan, TargetFacts
from tandem.drill.preflight import Group
from tandem.drill.recording import Recording
from tandem.drill.scenario_file import FOLDER, Scenario, choose
from tandem.drill.sentences.sentence import Fault
from tandem.drill.targets.node_commands import NodeCommands, TargetCommandError
from tandem.drill.targets.process_file import Kind, ProcessFile, ProcessNode
from tandem.drill.targets.process_nodes import (
    ProcessNetwork,
    ProcessNodes,
    RefusedError,
)
from tandem.drill.targets.process_watch import watch_words
from tandem.drill.targets.putting_back import Made, made_by, put_back
from tandem.drill.targets.rocketmq import (
    ATTEMPT_MS,
    HEARTBEAT_MS,
    MESSAGE_BYTES_MAX,
    SEND_SECONDS_MAX,
    SETTLE_SECONDS,
    SLAVE_TIMEOUT_MS,
    TOPIC_COPY_SECONDS,
    RunningRocketMQ,
)
from tandem.drill.targets.rocketmq_consumers import consumer_contract_of, unsuited
from tandem.drill.targets.rocketmq_contract import Contract, contract_of, not_as_assumed
from tandem.drill.targets.rocketmq_layout import Mode
from tandem.drill.targets.rocketmq_watch import (
    WatchedBrokers,
    as_given,
    watch_broker,
    watch_controllers,
)
from tandem.drill.targets.target import REPEATS_DELAYS, Ground, Running, Task, cannot
from tandem.drill.watch import SILENT_SECONDS, watch_node
from tandem.tls_files import TLSFileError
from tandem.wire.errors import ArgumentError
from tandem.wire.frame_seal import Signatures
from tandem.wire.response_code import ResponseCode

ANSWER_SECONDS_MAX: Final = 20.0
"""For a node that was started, times the patience of the file."""

LOG_FOLDER: Final = "commitlog"

_CLASSIC_4: Final = (
    "SEND_OK waits for one slave, and says so if there is none. No master is elected: it is the"
    " master's log that counts"
)
_CLASSIC_5: Final = (
    "SEND_OK waits for {count} replicas, the master counted (in_sync_replicas). No master is"
    " elected: it is the master's log that counts"
)
_FENCED: Final = (
    "SEND_OK waits for every member of the in-sync set, and a master is elected from it alone"
)


class ProcessesTarget:
    """The cluster that a file describes."""

    name: Final = "processes"
    others: Final[Sequence[Group]] = ()
    max_message_size_bytes: Final = MESSAGE_BYTES_MAX

    def __init__(self, file: ProcessFile) -> None:
        """Take a checked file.

        Raises:
            BadOptionsError: its settings promise nothing that is known here.
        """
        self._file = file
        self.faults: frozenset[Fault] = file.faults
        self._contract = _contract_of_rocketmq(file) if file.kind.is_rocketmq else None
        # What becomes of them with RocketMQ 4 nobody has seen.
        self._has_consumers = file.consumers and not file.version.startswith("4.")
        self.group = _group_of(file, self._contract)

    def choose(self, names: Sequence[str], *, short: bool) -> list[Scenario]:
        """Return what is to be played; raises BadScenarioError."""
        folder = FOLDER / "rocketmq" if self._file.kind.is_rocketmq else FOLDER
        remedy = "give one of its kind: `tandem drill list` with the same --target and --file"
        return choose(names, self.group.kind, short=short, folder=folder, remedy=remedy)

    def check(self, scenarios: Sequence[Scenario]) -> None:
        """Raise BadOptionsError for scenarios that need another cluster than there is."""
        for scenario in scenarios:
            if scenario.settings and not cannot(self.name, self.faults, scenario):
                raise BadOptionsError(
                    f"scenario {scenario.name} needs settings of its own"
                    f" ({', '.join(scenario.settings)}), and a deployed cluster has its settings;"
                    " leave it out"
                )

    def lay_out(self, out: Path, scenarios: Sequence[Scenario]) -> Ground:
        """Decide where the stores will be, and what answers mean.

        Raises:
            BadOptionsError, SecretFileError: a certificate, or the secret of a user, is of no use.
        """
        file = self._file
        stores = {node.name: node.store or out / "data" / node.name for node in file.nodes}
        suffix = f"-{secrets.token_hex(4)}"
        facts = TargetFacts(
            name=self.name,
            version=f"{file.kind} {file.version}".strip(),
            settings=file.settings,
            name_servers=file.name_servers,
            contract=_words_of(file, self._contract),
            patience=float(file.patience),
            topic=f"{TOPIC}{suffix}",
            consumers_suffix=suffix,
            has_consumers=self._has_consumers,
            has_timers=True,
            has_past=True,
            not_promised=REPEATS_DELAYS if file.kind is Kind.CLASSIC else {},
        )
        lease_ttl_ms = file.lease_ttl_ms
        if self._contract is not None:
            lease_ttl_ms = HEARTBEAT_MS
            contract = self._contract
            of_consumers = consumer_contract_of(
                _mode_of(file), file.settings, not_promised=contract.not_promised
            )
            facts = msgspec.structs.replace(
                facts,
                rules={**contract.rules, **of_consumers.rules},
                not_promised={**contract.not_promised, **of_consumers.not_promised},
                settle_seconds=SETTLE_SECONDS,
                topic_copy_seconds=TOPIC_COPY_SECONDS,
                attempt_ms=ATTEMPT_MS,
                send_seconds_max=SEND_SECONDS_MAX,
                refusal_is_clear=False,
            )
        return Ground(
            config=file.file,
            cluster=self.name,
            coordinator=CoordinatorSettings(lease_ttl_ms=lease_ttl_ms),
            slave_timeout_ms=SLAVE_TIMEOUT_MS,
            stores=stores,
            tls=file.tls,
            access=_access_of(file),
            facts=facts,
        )

    @asynccontextmanager
    async def running(self, plan: Plan, recording: Recording) -> AsyncIterator[Running]:
        """Have all nodes up; leave them as they were found.

        Raises:
            TargetError: a node cannot be found, started or asked, or has no store where it should.
        """
        file = self._file
        commands = {node.name: self._commands_of(node, plan.out) for node in file.nodes}
        network = ProcessNetwork(commands)
        async with AsyncExitStack() as stack:
            secret = read_secret(file.secret_file) if file.secret_file is not None else ""
            access = msgspec.structs.replace(plan.access, secret=secret)
            admin = await stack.enter_async_context(Admin(access))
            askers = {
                # One connection set each: a frozen node must not hold up the others.
                node.name: await stack.enter_async_context(Admin(access))
                for node in plan.group.nodes
            }
            nodes = ProcessNodes(
                commands,
                answers=partial(_answers, askers, self._file),
                watched=recording.watched,
                orders=admin if file.kind is Kind.FENCED and secret else None,
                now=recording.clock.now,
            )
            made = Made()
            try:
                await nodes.begin(ANSWER_SECONDS_MAX * file.patience)
                _check_stores(file)
                has_timers = await self._check_settings(admin)
                made = made_by(plan)
                if recording.promises is not None:
                    for apart_ms in (file.clock_ms, -file.clock_ms):
                        recording.promises.allow_early(apart_ms)
                running = self._what_runs(nodes, network, access, admin, askers, recording)
                running.has_timers = has_timers
                yield running
                await self._fetch(commands, plan, recording)
            finally:
                with trio.CancelScope(shield=True):
                    recording.notes += await put_back(nodes, network, admin, made)

    def _commands_of(self, node: ProcessNode, out: Path) -> NodeCommands:
        log = out / "data" / "logs" / f"{node.name}.commands.log"
        return NodeCommands(node, self._file.file.parent, log, float(self._file.command_seconds))

    def _what_runs(
        self,
        nodes: ProcessNodes,
        network: ProcessNetwork,
        access: ClusterAccess,
        admin: Admin,
        askers: dict[str, Admin],
        recording: Recording,
    ) -> Running:
        file, group, clock = self._file, self.group, recording.clock
        watchers: list[Task] = [partial(nodes.watch, node.name) for node in group.nodes]
        watched = recording.watched
        if file.kind is Kind.FENCED and watched is not None:
            watchers.append(partial(watch_words, watched, clock))
            for node in group.nodes:
                asker, address = askers[node.name], node.client_address
                replication = recording.replication
                watchers.append(
                    partial(watch_node, asker, node.name, address, watched, replication, clock)
                )
        else:
            brokers = WatchedBrokers(group.nodes, recording.replication, watched)
            watchers += [
                partial(watch_broker, askers[node.name], node, brokers, clock)
                for node in group.nodes
            ]
            if file.controllers:
                watchers.append(
                    partial(watch_controllers, file.controllers, group.name, brokers, clock)
                )
        cuts = Fault.CUT_OFF in self.faults
        if file.kind.is_rocketmq:
            running: Running = RunningRocketMQ(
                addresses=[node.client_address for node in group.nodes],
                nodes=nodes,
                access=access,
                admin=admin,
                watchers=watchers,
            )
        else:
            running = Running(
                nodes=nodes, network=None, access=access, admin=admin, watchers=watchers
            )
        running.network = network if cuts else None
        return running

    async def _check_settings(self, admin: Admin) -> bool:
        """Compare the settings that the file gives with those that brokers say they have.

        Returns whether all that may be master take messages with a time of their own.
        """
        has_timers = True
        for node in self._file.nodes:
            decides = self._decides(node)
            if not self._file.kind.is_rocketmq and not (self._has_consumers and decides):
                continue
            try:
                said = await admin.broker_config(node.client_address)
            except ClientError as error:
                remedy = (
                    ""
                    if self._file.kind.is_rocketmq
                    else f"; say `consumers: false` in {self._file.file} to drill sends alone"
                )
                raise TargetError(
                    f"{node.name} does not say its settings: {error}{remedy}"
                ) from error
            if self._file.kind.is_rocketmq:
                self._compare(node, said)
            if self._has_consumers and decides:
                self._check_groups(node, said)
                has_timers = has_timers and said.get("timerWheelEnable", "true") == "true"
        return has_timers

    def _compare(self, node: ProcessNode, said: Mapping[str, str]) -> None:
        """Raise TargetError if what it promises would not be what the drill judges by."""
        given = dict(self._file.settings)
        if node is not self._file.nodes[0]:
            given.pop("brokerRole", None)
        assumed = not_as_assumed(given, said) if self._decides(node) else []
        if assumed:
            raise TargetError(
                f"{node.name} has {'; '.join(assumed)}, and the file does not say so: what it"
                " promises would not be what the drill judges by; add that to `settings`"
            )
        others = as_given(given, said)
        if others:
            raise TargetError(
                f"{node.name} has other settings than the file gives: {'; '.join(others)}: what"
                " it promises would not be what the drill judges by; correct `settings`"
            )

    def _check_groups(self, node: ProcessNode, said: Mapping[str, str]) -> None:
        """Raise TargetError if groups of consumers cannot be played there."""
        others = unsuited(said)
        if others:
            raise TargetError(
                f"{node.name} has {'; '.join(others)}, with which groups of consumers cannot be"
                f" drilled; say `consumers: false` in {self._file.file} to drill sends alone"
            )

    def _decides(self, node: ProcessNode) -> bool:
        """Whether its settings say what SEND_OK means: those of each node that may be master."""
        return self._file.kind.elects or node is self._file.nodes[0]

    async def _fetch(
        self, commands: dict[str, NodeCommands], plan: Plan, recording: Recording
    ) -> None:
        """Copy the stores that are elsewhere. Without one there is no audit, and a report."""
        for node in self._file.nodes:
            if node.store is not None:
                if not (node.store / LOG_FOLDER).is_dir():
                    recording.no_audit = (
                        f"the store of {node.name}, {node.store}, has no {LOG_FOLDER} in it;"
                        " correct `store`"
                    )
                    return
                continue
            store = plan.stores[node.name]
            store.mkdir(parents=True, exist_ok=True)
            seconds_max = float(self._file.fetch_seconds)
            try:
                given = {"STORE": str(store)}
                await commands[node.name].run("fetch", given, seconds_max=seconds_max)
            except TargetCommandError as error:
                recording.no_audit = str(error)
                return
            if not (store / LOG_FOLDER).is_dir():
                recording.no_audit = (
                    f"{node.name}: `fetch` brought no {LOG_FOLDER} to $STORE:"
                    f" {node.commands.fetch}; correct it"
                )
                return


def _access_of(file: ProcessFile) -> ClusterAccess | None:
    """Return who the drill is, of a cluster with users. RocketMQ knows its own signatures alone."""
    try:
        if file.tls is not None:
            file.tls.client_context()
        if file.secret_key_file is None:
            return None
        signatures = Signatures.ANY if file.kind.is_rocketmq else Signatures.REPLAY_PROOF
        return ClusterAccess(
            file.name_servers,
            access_key=file.access_key,
            secret_key=read_private(file.secret_key_file, str(file.secret_key_file)).strip(),
            signatures=signatures.value,
            tls=file.tls,
        )
    except (TLSFileError, ArgumentError) as error:
        raise BadOptionsError(f"{file.file}: {error}") from error


def _group_of(file: ProcessFile, contract: Contract | None) -> Group:
    nodes = [
        NodeSpec(
            name=node.name,
            group=file.group,
            broker_id=number,
            role="NODE" if file.kind.elects else "SLAVE" if number else "MASTER",
            address=node.address,
            port=node.port,
            ha_port=0,
            name_server_port=0,
            replication_port=0,
            directory=node.store or Path(node.name),
            commit_log_directories=(),
        )
        for number, node in enumerate(file.nodes)
    ]
    without = FLUSH_SLAVE_TIMEOUT if file.in_sync_replicas else SLAVE_NOT_AVAILABLE
    return Group(
        name=file.group,
        kind=GroupKind.FENCED if file.kind.elects else GroupKind.CLASSIC,
        nodes=nodes,
        status_without_slaves=without if contract is None else contract.status_without_slaves,
    )


def _contract_of_rocketmq(file: ProcessFile) -> Contract:
    is_4 = file.version.startswith("4.")
    return contract_of(_mode_of(file), file.settings, is_4=is_4, node_count=len(file.nodes))


def _mode_of(file: ProcessFile) -> Mode:
    if file.kind is Kind.ROCKETMQ_CONTROLLER:
        return Mode.CONTROLLER
    roles = {"SYNC_MASTER": Mode.SYNC_MASTER, "ASYNC_MASTER": Mode.ASYNC_MASTER}
    role = file.settings.get("brokerRole", "")
    if role not in roles:
        raise BadOptionsError(
            f"{file.file}: settings.brokerRole is {role!r}; give that of the master,"
            " SYNC_MASTER or ASYNC_MASTER: it says what SEND_OK means"
        )
    return roles[role]


def _words_of(file: ProcessFile, contract: Contract | None) -> str:
    if contract is not None:
        return contract.send_ok
    if file.kind is Kind.FENCED:
        return _FENCED
    count = file.in_sync_replicas
    return _CLASSIC_5.format(count=count) if count else _CLASSIC_4


async def _answers(askers: dict[str, Admin], file: ProcessFile, name: str) -> bool:
    """Whether a node answers what a drill asks it all the time.

    Raises:
        RefusedError: it answers something else, as that the user of the file may not ask, or that
            it knows no such request, for the node is of another kind than the file says.
    """
    (node,) = (each for each in file.nodes if each.name == name)
    asker = askers[name]
    try:
        with trio.move_on_after(SILENT_SECONDS):
            if file.kind is Kind.FENCED:
                await asker.fenced_status(node.client_address)
            else:
                await asker.ha_runtime_info(node.client_address)
            return True
    except BrokerError as error:
        is_lasting = error.code in (
            ResponseCode.NO_PERMISSION,
            ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
        )
        text = _refusal(file, node, error) if is_lasting else f"{node.name}: {error}"
        raise RefusedError(text, is_lasting=is_lasting) from error
    except ClientError:
        pass  # not yet
    return False


def _refusal(file: ProcessFile, node: ProcessNode, error: BrokerError) -> str:
    """What was refused, where that is written, and what to do about it."""
    where = f"{node.name} at {node.client_address}"
    if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        return (
            f"{where} does not know what a node of `kind: {file.kind}` is asked"
            f" ({error.remark.strip()}); correct `kind` of {file.file}, or its address and port"
        )
    if file.secret_key_file is None:
        return (
            f"{where} asks for a user, and {file.file} gives none ({error.remark}); give it"
            " `access_key` and `secret_key_file`"
        )
    return (
        f"{where} refuses the user {file.access_key}, whose name is `access_key` of {file.file} and"
        f" whose secret is in {file.secret_key_file} (`secret_key_file`): {error.remark}; correct"
        " them, or give that user the rights of a super user"
    )


def _check_stores(file: ProcessFile) -> None:
    for node in file.nodes:
        if node.store is not None and not node.store.is_dir():
            what = "is no directory" if node.store.exists() else "does not exist"
            raise TargetError(
                f"the store of {node.name}, {node.store}, {what}; correct `store`, or give a"
                " command `fetch` if it is on another machine"
            )
