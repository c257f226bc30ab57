"""Asks nodes once each, without patience: what `Admin.why` gathers with, and where logs end.

A node that does not answer is a finding of its own. It is noted, and not asked again.
"""

from collections.abc import Collection
from typing import Final

import msgspec

from tandem.client.admin_calls import SUCCESS, AdminCalls, BrokerAnswer, decode_body
from tandem.client.errors import (
    BrokerError,
    ClientError,
    ConnectionCause,
    ConnectionLostError,
    RequestTimeoutError,
)
from tandem.client.flow import Call, CallMany, Flow
from tandem.life.evidence import UNKNOWN, Epoch, Evidence, NodeLog, Replica
from tandem.wire.admin_headers import settings_of
from tandem.wire.errors import MalformedFrameError
from tandem.wire.ha_status import FencedStatus
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import HARuntimeInfo, KVTable
from tandem.wire.response_code import ResponseCode
from tandem.wire.route import MASTER_ID, BodyT
from tandem.wire.stats_requests import EpochEntryCache

Header = msgspec.Struct | dict[str, str] | None
Answer = RemotingCommand | ClientError

ABOUT_A_NODE: Final = (
    RequestCode.FENCED_STATUS,
    RequestCode.GET_BROKER_RUNTIME_INFO,
    RequestCode.GET_BROKER_EPOCH_CACHE,
    RequestCode.GET_BROKER_HA_STATUS,
    RequestCode.GET_BROKER_CONFIG,
)


class Nodes:
    """The nodes that are registered, and who of them does not answer."""

    def __init__(self, calls: AdminCalls, brokers: dict[str, dict[int, str]]) -> None:
        self.calls = calls
        self.brokers = brokers
        """Addresses by broker id, by broker name."""
        self.names: dict[str, str] = {}
        """What a node calls itself, by address."""
        self.settings: dict[str, dict[str, str]] = {}
        """The settings of the nodes that say them, by address."""
        self.refusals: dict[str, BrokerError] = {}
        """Who does not say where its log begins and ends, by address."""
        self._silent: set[str] = set()

    def name_of(self, address: str) -> str:
        """Return what a node is called: its own name, else its address."""
        return self.names.get(address, address)

    def addresses(self, broker_name: str) -> list[str]:
        """Return the nodes of a broker name that answer, the master first."""
        found = self.brokers.get(broker_name, {})
        return [each for _, each in sorted(found.items()) if each not in self._silent]

    def ask(self, calls: list[tuple[str, RequestCode, Header]]) -> Flow[list[Answer]]:
        """Ask several things of several nodes at once; return an answer or an error for each."""
        answers = yield from self.ask_clients(calls)
        for (address, _, _), answer in zip(calls, answers, strict=True):
            if isinstance(answer, ConnectionLostError | RequestTimeoutError):
                self._silent.add(address)
        return answers

    def ask_clients(self, calls: list[tuple[str, RequestCode, Header]]) -> Flow[list[Answer]]:
        """Ask the same where a node passes the question on: no answer says nothing about it."""
        made = [Call(address, code, ext, self.calls.deadline()) for address, code, ext in calls]
        answers: list[Answer] = yield CallMany(made)
        return answers

    def ask_broker(
        self,
        broker_name: str,
        code: RequestCode,
        ext: Header,
        *,
        accepted: Collection[int] = SUCCESS,
    ) -> Flow[BrokerAnswer | ClientError]:
        """Ask one node of a broker name: the master, and another if it does not answer."""
        last: ClientError = ConnectionLostError(
            broker_name, ConnectionCause.UNREACHABLE, "none of its nodes answers"
        )
        for address in self.addresses(broker_name):
            (answer,) = yield from self.ask([(address, code, ext)])
            if isinstance(answer, ClientError):
                last = answer
            elif answer.code in accepted:
                return BrokerAnswer(broker_name, address, answer)
            else:
                last = BrokerError(answer.code, answer.remark or "", address)
                if answer.code != ResponseCode.SERVICE_NOT_AVAILABLE:
                    return last
        return last

    def ask_each(
        self, evidence: Evidence, what: str, code: RequestCode, ext: Header, *but: ResponseCode
    ) -> Flow[list[BrokerAnswer]]:
        """Ask every broker name; what is refused, other than with a code of `but`, is a gap."""
        answers = []
        for broker_name in sorted(self.brokers):
            answer = yield from self.ask_broker(broker_name, code, ext)
            if isinstance(answer, BrokerAnswer):
                answers.append(answer)
            elif not (isinstance(answer, BrokerError) and answer.code in but):
                evidence.gap(f"{what} at {broker_name}", str(answer), remedy_for(answer))
        return answers


def remedy_for(error: ClientError) -> str:
    """Say what to do about an error."""
    if isinstance(error, BrokerError) and error.code == ResponseCode.NO_PERMISSION:
        return "ask as a user who may, or with --store"
    if isinstance(error, ConnectionLostError | RequestTimeoutError):
        return "ask again when it answers, or its directory with --store"
    return ""


class LifeNodes:
    """Finds out where the log of each node begins and ends, and what it is in its group."""

    def __init__(self, calls: AdminCalls) -> None:
        self._calls = calls

    def gather(self, evidence: Evidence) -> Flow[Nodes]:
        """Ask all nodes that the name servers know.

        Raises:
            RouteNotFoundError: no name server answers.
        """
        info = yield from self._calls.cluster_info()
        table = sorted(info.broker_addr_table.items())
        nodes = Nodes(self._calls, {name: dict(each.broker_addrs) for name, each in table})
        asked = [
            (name, node_id, address)
            for name, addresses in nodes.brokers.items()
            for node_id, address in sorted(addresses.items())
        ]
        answers = yield from nodes.ask(
            [(address, code, None) for _, _, address in asked for code in ABOUT_A_NODE]
        )
        for place, (broker, node_id, address) in enumerate(asked):
            start = place * len(ABOUT_A_NODE)
            told = dict(zip(ABOUT_A_NODE, answers[start : start + len(ABOUT_A_NODE)], strict=True))
            evidence.nodes.append(_node_log(nodes, broker, node_id, address, told))
        _note_missing(evidence)
        for address, refusal in nodes.refusals.items():
            what = f"where the log of {nodes.name_of(address)} begins and ends"
            evidence.gap(what, str(refusal), remedy_for(refusal))
        if not asked:
            evidence.gap("the cluster", "no broker is registered at the name servers")
        return nodes


def _note_missing(evidence: Evidence) -> None:
    """Note nodes that masters know of, and that are not registered: nobody can ask them."""
    known = {log.node for log in evidence.nodes}
    for log in evidence.nodes:
        for replica in log.replicas:
            if log.is_fenced and replica.name not in known and not replica.is_connected:
                evidence.gap(
                    f"node {replica.name}",
                    replica.trouble or "its master has no connection to it",
                    "start it, or read its directory with --store",
                )
        if log.trouble:
            evidence.gap(f"node {log.node}", log.trouble, "read its directory with --store")


def _node_log(
    nodes: Nodes, broker: str, node_id: int, address: str, told: dict[RequestCode, Answer]
) -> NodeLog:
    runtime = told[RequestCode.GET_BROKER_RUNTIME_INFO]
    status = _body(told[RequestCode.FENCED_STATUS], FencedStatus, address)
    config = told[RequestCode.GET_BROKER_CONFIG]
    settings = nodes.settings[address] = _settings(config)
    if status is not None:
        nodes.names[address] = status.node
    if isinstance(runtime, ClientError):
        return NodeLog(
            node=nodes.name_of(address), broker=broker, source=address, trouble=str(runtime)
        )
    if runtime.code != ResponseCode.SUCCESS:
        refusal = BrokerError(runtime.code, runtime.remark or "", address)
        nodes.refusals[address] = refusal
    table = _body(runtime, KVTable, address)
    numbers = table.table if table is not None else {}
    log = NodeLog(
        node=nodes.name_of(address),
        broker=broker,
        source=f"{address}, {RequestCode.GET_BROKER_RUNTIME_INFO.name}",
        role=_role(node_id, told[RequestCode.FENCED_STATUS]),
        start=_number(numbers.get("commitLogMinOffset")),
        end=_number(numbers.get("commitLogMaxOffset")),
        first_store_ms=max(0, _number(numbers.get("earliestMessageTimeStamp"))),
        epochs=_epochs(told[RequestCode.GET_BROKER_EPOCH_CACHE], address),
        is_indexed=_is_indexed(settings),
        contract=_contract(settings),
        damage=numbers.get("commitLogDamage", ""),
    )
    slaves = _slaves(_body(told[RequestCode.GET_BROKER_HA_STATUS], HARuntimeInfo, address))
    if status is None:
        return msgspec.structs.replace(log, replicas=slaves)
    return _fenced(log, status, address, slaves)


def _role(node_id: int, status: Answer) -> str:
    """Return what a node is by its registration; "" for one that may be a follower or a slave."""
    if node_id == MASTER_ID:
        return "MASTER"
    is_refused = isinstance(status, ClientError) or status.code == ResponseCode.NO_PERMISSION
    return "" if is_refused else "SLAVE"


def _fenced(
    log: NodeLog, status: FencedStatus, address: str, peers: tuple[Replica, ...]
) -> NodeLog:
    """Return the same of a fenced group. `peers` has nodes that never reached this master, too."""
    told = {each.name for each in status.replicas}
    return msgspec.structs.replace(
        log,
        source=f"{address}, {RequestCode.FENCED_STATUS.name}",
        role=status.role,
        is_fenced=True,
        start=status.log_start,
        end=status.log_end,
        flushed=status.flushed,
        confirm=status.confirm,
        in_sync=tuple(status.isr),
        min_isr=status.min_isr,
        ack_level=status.ack_level,
        master=status.master,
        contract="",
        switched_ms=status.last_switch_at_ms if status.previous_master else 0,
        switch_reason=status.last_switch_reason,
        replicas=tuple(
            Replica(
                name=each.name,
                written=each.written,
                flushed=each.flushed,
                is_connected=each.connected,
                is_in_sync=each.in_sync,
                trouble=each.trouble,
            )
            for each in status.replicas
        )
        + tuple(each for each in peers if each.name not in told),
    )


def _slaves(ha: HARuntimeInfo | None) -> tuple[Replica, ...]:
    if ha is None or not ha.master:
        return ()
    return tuple(
        Replica(
            name=each.name or each.addr,
            written=each.slave_ack_offset,
            is_connected=each.transfer_from_where >= 0,
            is_in_sync=each.in_sync,
            trouble=each.reason,
        )
        for each in ha.ha_connection_info
    )


def _epochs(answer: Answer, address: str) -> tuple[Epoch, ...]:
    cache = _body(answer, EpochEntryCache, address)
    if cache is None:
        return ()
    return tuple(Epoch(each.epoch, each.start_offset) for each in cache.epoch_list)


def _body(answer: Answer, body_type: type[BodyT], address: str) -> BodyT | None:
    """Return the record of an answer; None if it is refused or cannot be read."""
    if isinstance(answer, ClientError) or answer.code != ResponseCode.SUCCESS:
        return None
    try:
        return decode_body(answer, body_type, address)
    except ConnectionLostError:
        return None


def _settings(answer: Answer) -> dict[str, str]:
    if isinstance(answer, ClientError) or answer.code != ResponseCode.SUCCESS:
        return {}
    try:
        return settings_of(answer.body)
    except MalformedFrameError:
        return {}


def _is_indexed(settings: dict[str, str]) -> bool | None:
    value = settings.get("messageIndexEnable", "").lower()
    return None if value not in ("true", "false") else value == "true"


def _contract(settings: dict[str, str]) -> str:
    names = ("flushDiskType", "brokerRole")
    return ", ".join(f"{name} {settings[name]}" for name in names if name in settings)


def _number(text: str | None) -> int:
    if text is None or not text.isascii() or not text.isdigit() or len(text) > 18:
        return UNKNOWN
    return int(text)
