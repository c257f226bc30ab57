"""Carries out the lines of `tandem testing serve` on a cluster that is up; blocks meanwhile."""

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from tandem.client import BlockingAdmin, BrokerError, ClientError, RouteNotFoundError
from tandem.cluster.errors import OrderRefusedError
from tandem.cluster.node_lifecycle import NodeState
from tandem.cluster_file.errors import ClusterError, UnknownNodeError
from tandem.testing.cluster import POLL_SECONDS, RunningCluster
from tandem.testing.errors import FaultNeed, FaultNotPossibleError
from tandem.testing.faults import Fault
from tandem.testing.serve_protocol import (
    Code,
    DoneLine,
    ErrorLine,
    FaultResult,
    LineError,
    NodeResult,
    NoResult,
    OfFault,
    OfLink,
    OfMasterWait,
    OfNode,
    OfPartition,
    OfSlowLink,
    OfTopic,
    OfWait,
    Order,
    Result,
    StatusResult,
    TopicResult,
    Trouble,
    encoded,
    read_order,
)

ROUTE_SECONDS_MAX: Final = 30.0

SELF_TEST_TOPIC: Final = "SELF_TEST_TOPIC"
"""Source: TopicConfigManager of RocketMQ 5.3.3."""

_CODES: Final[tuple[tuple[type[Exception], Code], ...]] = (
    (UnknownNodeError, Code.UNKNOWN_NODE),
    (FaultNotPossibleError, Code.NOT_POSSIBLE),
    (OrderRefusedError, Code.REFUSED),
    (BrokerError, Code.REFUSED),
    (ClientError, Code.NO_ANSWER),
    (ClusterError, Code.GONE),
    (TimeoutError, Code.TIMEOUT),
    (OSError, Code.SYSTEM),
    (ValueError, Code.WRONG_ARGUMENTS),
)
"""The first that fits."""

_REMEDIES: Final[Mapping[FaultNeed, str]] = {
    FaultNeed.PROXIES: "this cluster has one node, and no network that can be hurt: give --nodes 2",
    FaultNeed.DISKS: "the store is not on a disk of its own, and yours is not filled: give"
    " --disk-mib 64",
}
"""How to start a cluster that can have such a fault, by `tandem testing serve`."""

EXPECTED: Final = tuple(kind for kind, _ in _CODES)
"""The errors that an answer can have."""


def trouble_of(error: Exception) -> Trouble:
    """What a program is given of an error that was expected."""
    code = next(code for kind, code in _CODES if isinstance(error, kind))
    if isinstance(error, FaultNotPossibleError) and error.need in _REMEDIES:
        return Trouble(code, _REMEDIES[error.need])
    return Trouble(code, str(error))


class ClusterOrders:
    """One cluster, and the faults that were begun by orders, by number."""

    def __init__(self, cluster: RunningCluster) -> None:
        self._cluster = cluster
        self._faults: list[Fault] = []
        self._calls: Mapping[str, Callable[[Any], Result]] = {
            "status": lambda _: StatusResult(nodes=cluster.status()),
            "master": lambda _: NodeResult(node=cluster.master()),
            "wait_for_master": self._wait_for_master,
            "wait_in_sync": self._wait_in_sync,
            "topic": self._topic,
            "kill": self._of_node(cluster.kill),
            "kill_master": lambda _: NodeResult(node=cluster.kill_master()),
            "stop": self._of_node(cluster.stop),
            "start": self._of_node(cluster.start),
            "restart": self._of_node(cluster.restart),
            "freeze": self._freeze,
            "thaw": self._of_node(cluster.thaw),
            "partition": self._partition,
            "cut": self._cut,
            "slow_link": self._slow_link,
            "fill_disk": self._fill_disk,
            "undo": self._undo,
            "heal": self._of_all(cluster.heal),
            "recover": self._of_all(cluster.recover),
        }

    def answer(self, line: bytes | None) -> bytes:
        """Do what a line says; return the line that answers it. None is a line that is too long."""
        order_id: Any = msgspec.UNSET
        try:
            order = read_order(line)
            order_id = order.id
            done = DoneLine(id=order.id, done=order.name, result=self.carry_out(order))
        except LineError as error:
            given = order_id if error.id is msgspec.UNSET else error.id
            return encoded(ErrorLine(id=given, error=Trouble(error.code, error.text)))
        except EXPECTED as error:
            return encoded(ErrorLine(id=order_id, error=trouble_of(error)))
        return encoded(done)

    def carry_out(self, order: Order) -> Result:
        """Do it.

        Raises:
            LineError: An argument means nothing here.
            ClusterError, ClientError, TimeoutError, OSError, ValueError: As `RunningCluster`.
        """
        return self._calls[order.name](order.arguments)

    def make_topic(self, name: str, queues: int) -> str:
        """Make a topic that every name server of a live node knows; return its name.

        RocketMQ's clients ask one of the name servers, and believe it.

        Raises:
            ClientError: The master does not make it.
            TimeoutError: One of them does not get to know it.
        """
        if name:
            with BlockingAdmin(self._cluster.access) as admin:
                admin.create_topic(name, queue_nums=queues)
        else:
            name = self._cluster.topic(queues=queues)
        self.wait_known(name)
        return name

    def wait_known(self, topic: str = SELF_TEST_TOPIC) -> None:
        """Block until every name server of a live node knows where a topic is.

        `topic`: without one, one that every master has.

        Raises:
            TimeoutError: One of them does not get to know it.
        """
        deadline = time.monotonic() + ROUTE_SECONDS_MAX
        for node in self._cluster.status():
            if node.state is NodeState.RUNNING:
                self._wait_for_route(topic, node.name, deadline)

    def _wait_for_route(self, topic: str, node: str, deadline: float) -> None:
        server = self._cluster.spec.node(node).client_address
        access = msgspec.structs.replace(self._cluster.access, name_servers=[server])
        with BlockingAdmin(access) as admin:
            while True:
                try:
                    admin.topic_route(topic)
                except RouteNotFoundError:
                    if time.monotonic() > deadline:
                        raise TimeoutError(
                            f"the name server of {node} does not know topic {topic}"
                            f" in {ROUTE_SECONDS_MAX:g} s"
                        ) from None
                    time.sleep(POLL_SECONDS)  # noqa: TID251 - a thread of its own, not a node's
                else:
                    return

    # --- one for each order ---------------------------------------------------------------------

    def _of_node(self, call: Callable[[str], None]) -> Callable[[OfNode], Result]:
        def of_node(arguments: OfNode) -> Result:
            call(arguments.node)
            return NoResult()

        return of_node

    def _of_all(self, call: Callable[[], None]) -> Callable[[object], Result]:
        def of_all(_: object) -> Result:
            call()
            return NoResult()

        return of_all

    def _wait_for_master(self, given: OfMasterWait) -> Result:
        if given.other_than:
            self._cluster.spec.node(given.other_than)
        return NodeResult(
            node=self._cluster.wait_for_master(
                other_than=given.other_than, seconds_max=given.seconds_max
            )
        )

    def _wait_in_sync(self, given: OfWait) -> Result:
        self._cluster.wait_in_sync(seconds_max=given.seconds_max)
        return NoResult()

    def _topic(self, given: OfTopic) -> Result:
        return TopicResult(topic=self.make_topic(given.name, given.queues))

    def _freeze(self, given: OfNode) -> Result:
        return self._begun(self._cluster.freeze(given.node))

    def _partition(self, given: OfPartition) -> Result:
        return self._begun(self._cluster.partition(*given.nodes, direction=given.direction))

    def _cut(self, given: OfLink) -> Result:
        return self._begun(self._cluster.cut(given.node, given.other, direction=given.direction))

    def _slow_link(self, given: OfSlowLink) -> Result:
        return self._begun(
            self._cluster.slow_link(
                given.node,
                given.other,
                delay_ms=given.delay_ms,
                bytes_per_second=given.bytes_per_second,
                direction=given.direction,
            )
        )

    def _fill_disk(self, given: OfNode) -> Result:
        return self._begun(self._cluster.fill_disk(given.node))

    def _begun(self, fault: Fault) -> Result:
        self._faults.append(fault)
        return FaultResult(fault=len(self._faults))

    def _undo(self, given: OfFault) -> Result:
        if not 1 <= given.fault <= len(self._faults):
            text = f"no fault has the number {given.fault}; {len(self._faults)} were begun"
            raise LineError(Code.UNKNOWN_FAULT, text)
        self._faults[given.fault - 1].undo()
        return NoResult()
