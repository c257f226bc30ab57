"""What a group of RocketMQ is for a drill: its addresses and the properties of its programs. Pure.

    controller     brokers that elect their master; the settings of conf/controller/quick-start
    sync-master    a master and its slaves, as conf/2m-2s-sync has them
    async-master   the same, as conf/2m-2s-async has them

All is as RocketMQ ships it, but for what a drill needs: places, ports, log files of 128 MiB, no
topic that is made by a send, `brokerFastFailureEnable` off, which answers SYSTEM_BUSY while the JIT
compiler has the cores, and transactions that are asked about every 5 s, without end.
"""

import enum
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from tandem.cluster.spec import NodeSpec
from tandem.cluster_file.choices import GroupKind
from tandem.drill.errors import BadOptionsError
from tandem.drill.preflight import Group

GROUP: Final = "broker-r"
CLUSTER: Final = "DrillCluster"
NODE_COUNT: Final = 3
NAME_SERVER: Final = "name-server"

NAME_SERVER_PORT: Final = 9876
CONTROLLER_PORT: Final = 9878
BROKER_PORT: Final = 10911
PORTS_APART: Final = 10
"""A broker also takes the port two below its own."""

OWN_KEYS: Final = (
    *("brokerClusterName", "brokerName", "brokerId", "namesrvAddr", "controllerAddr"),
    *("listenPort", "bindAddress", "brokerIP1", "brokerIP2", "haListenPort", "haMasterAddress"),
    *("storePathRootDir", "storePathCommitLog", "brokerRole", "enableControllerMode"),
    *("enableControllerInNamesrv", "enableDLegerCommitLog", "duplicationEnable"),
)
"""Properties that are the drill's to give."""

NUMBERS: Final = ("inSyncReplicas", "minInSyncReplicas")
"""Properties that a contract reckons with."""


class Mode(enum.StrEnum):
    """How the brokers of a group replicate."""

    CONTROLLER = "controller"
    SYNC_MASTER = "sync-master"
    ASYNC_MASTER = "async-master"


_OF_MODE: Final[Mapping[Mode, Mapping[str, str]]] = {
    Mode.CONTROLLER: {"allAckInSyncStateSet": "true"},
    Mode.SYNC_MASTER: {},
    Mode.ASYNC_MASTER: {},
}
_OF_DRILL: Final = {
    "mappedFileSizeCommitLog": str(128 << 20),
    "autoCreateTopicEnable": "false",
    "brokerFastFailureEnable": "false",
    "flushDiskType": "ASYNC_FLUSH",
    "deleteWhen": "04",
    "fileReservedTime": "48",
    "diskMaxUsedSpaceRatio": "95",
    # It asks soon, but not before it has noted what was answered last time, for which it takes 3 s.
    "transactionCheckInterval": "5000",
    "transactionTimeOut": "6000",
    # It does not give a transaction up while its producer cannot reach it.
    "transactionCheckMax": "1000",
}


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """Where everything of one group is. Ports of replication are taken on all addresses."""

    mode: Mode
    settings: Mapping[str, str]
    """Of the brokers, those that the user gave last."""
    base: str
    """The first three numbers of all addresses."""
    ha_ports: Sequence[int]
    data: Path
    name_server_count: int = 1

    @property
    def name_server_hosts(self) -> Mapping[str, str]:
        """The address of each name server by the name of its program; behind those of brokers."""
        others = range(1, self.name_server_count)
        return {NAME_SERVER: f"{self.base}.1"} | {
            f"{NAME_SERVER}-{number}": f"{self.base}.{NODE_COUNT + 1 + number}" for number in others
        }

    @property
    def name_servers(self) -> list[str]:
        """`host:port` of each."""
        return [f"{host}:{NAME_SERVER_PORT}" for host in self.name_server_hosts.values()]

    @property
    def controllers(self) -> list[str]:
        """`host:port` of each, within the processes of the name servers; they elect a leader."""
        return [f"{host}:{CONTROLLER_PORT}" for host in self.name_server_hosts.values()]

    @property
    def group(self) -> Group:
        """The brokers; of a group without a controller, the master first."""
        is_elected = self.mode is Mode.CONTROLLER
        nodes = [
            NodeSpec(
                name=f"{GROUP}-{number}",
                group=GROUP,
                broker_id=number,
                role="NODE" if is_elected else "SLAVE" if number else "MASTER",
                address=f"{self.base}.{number + 2}",
                port=BROKER_PORT + number * PORTS_APART,
                ha_port=ha_port,
                name_server_port=0,
                replication_port=0,
                directory=self.data / f"{GROUP}-{number}",
                commit_log_directories=(),
            )
            for number, ha_port in enumerate(self.ha_ports)
        ]
        kind = GroupKind.FENCED if is_elected else GroupKind.CLASSIC
        return Group(name=GROUP, kind=kind, nodes=nodes)

    @property
    def ports(self) -> list[tuple[str, int]]:
        """All that must be free."""
        found = [(host, NAME_SERVER_PORT) for host in self.name_server_hosts.values()]
        if self.mode is Mode.CONTROLLER:
            found += [(host, CONTROLLER_PORT) for host in self.name_server_hosts.values()]
        for node in self.group.nodes:
            found += [(node.address, node.port), (node.address, node.port - 2)]
            found.append(("0.0.0.0", node.ha_port))
        return found

    def name_server_properties(self, name: str) -> dict[str, str]:
        """Of one name server, and of the controller in its process."""
        home = self.data / name
        found = {
            "bindAddress": self.name_server_hosts[name],
            "listenPort": str(NAME_SERVER_PORT),
            "rocketmqHome": str(home),
            "kvConfigPath": str(home / "kvConfig.json"),
            "configStorePath": str(home / "namesrv.properties"),
        }
        if self.mode is Mode.CONTROLLER:
            found |= {
                "enableControllerInNamesrv": "true",
                "controllerDLegerGroup": "group1",
                "controllerDLegerPeers": ";".join(
                    f"n{number}-{address}" for number, address in enumerate(self.controllers)
                ),
                "controllerDLegerSelfId": f"n{list(self.name_server_hosts).index(name)}",
                "controllerStorePath": str(home / "controller"),
            }
        return found

    def broker_properties(self, node: NodeSpec) -> dict[str, str]:
        """Of one broker."""
        store = node.directory / "store"
        own = {
            "brokerClusterName": CLUSTER,
            "brokerName": GROUP,
            "namesrvAddr": ";".join(self.name_servers),
            "bindAddress": node.address,
            "brokerIP1": node.address,
            "brokerIP2": node.address,
            "listenPort": str(node.port),
            "haListenPort": str(node.ha_port),
            "storePathRootDir": str(store),
            "storePathCommitLog": str(store / "commitlog"),
        }
        if self.mode is Mode.CONTROLLER:
            own |= {
                "brokerId": "-1",
                "brokerRole": "SLAVE",
                "enableControllerMode": "true",
                "controllerAddr": ";".join(self.controllers),
            }
        else:
            master = "SYNC_MASTER" if self.mode is Mode.SYNC_MASTER else "ASYNC_MASTER"
            own |= {
                "brokerId": str(node.broker_id),
                "brokerRole": "SLAVE" if node.broker_id else master,
            }
        return {**_OF_DRILL, **self.settings, **own}


def settings_of(mode: Mode, given: Sequence[str]) -> dict[str, str]:
    """Return the properties of brokers: what the mode ships with, and `KEY=VALUE` of the user.

    Raises:
        BadOptionsError: one is none, or is the drill's to give.
    """
    found = dict(_OF_MODE[mode])
    for text in given:
        key, sign, value = text.partition("=")
        if not (sign and key.isidentifier() and value and value.isprintable()):
            raise BadOptionsError(f"--set {text}: give KEY=VALUE, such as inSyncReplicas=2")
        if key in OWN_KEYS:
            raise BadOptionsError(f"--set {text}: the drill decides {key}; leave it out")
        if key in NUMBERS and not (value.isascii() and value.isdecimal() and len(value) <= 9):
            raise BadOptionsError(f"--set {text}: {key} is a number, such as 2")
        found[key] = value
    return found
