"""The text of a new cluster file: the example that comes with the package, with other values.

So there is one source of comments, and a new file says what the example says of every setting.
"""

import ipaddress
import re
from string import ascii_lowercase
from typing import Final

import msgspec

from tandem.cluster.spec import CLUSTER_FILE
from tandem.cluster_file.choices import GroupKind

PORT_DEFAULT: Final = 10911
NAME_SERVER_PORT_DEFAULT: Final = 9876
COORDINATOR_PORT_DISTANCE: Final = 9
"""The embedded coordinator's port, counted from that of the first node: 10920 with 10911."""

PORT_STEP: Final = 10
"""Between the ports of two nodes that share an address."""

NODES_MAX: Final = 99

GROUPS_MAX: Final = len(ascii_lowercase)
"""As many as there are letters to name them by."""

_EXAMPLE_NODE: Final = "broker-a-0"


class NewCluster(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked for: one node an address, in this order.

    Nodes at one address get ports that are `PORT_STEP` apart.
    """

    addresses: tuple[str, ...]
    kind: GroupKind = GroupKind.FENCED
    name: str = "DefaultCluster"
    broker_name: str = "broker-a"
    port: int = PORT_DEFAULT
    name_server_port: int = NAME_SERVER_PORT_DEFAULT
    etcd_endpoints: tuple[str, ...] = ()
    groups_count: int = 1
    """How many groups there are; each has a node at each of the addresses."""

    @property
    def group_names(self) -> list[str]:
        """Their names: that of the first, and the next letters after it."""
        if self.groups_count == 1:
            return [self.broker_name]
        stem = self.broker_name.removesuffix("-a")
        return [f"{stem}-{letter}" for letter in ascii_lowercase[: self.groups_count]]

    @property
    def min_isr(self) -> int:
        """A majority: the loss of the other nodes is survived, and no message is lost with them."""
        return len(self.addresses) // 2 + 1


def loopback_addresses(count: int) -> tuple[str, ...]:
    """Return this many addresses of this machine: 127.0.0.1, 127.0.0.2, ..."""
    return tuple(f"127.0.0.{number}" for number in range(1, count + 1))


def is_beyond_this_machine(address: str) -> bool:
    """Whether others may reach it. False if it is no address: reading the file complains."""
    try:
        return not ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def new_file_text(example: str, wanted: NewCluster, file_name: str = CLUSTER_FILE) -> str:
    """Return the text of a cluster file.

    `example` is the text of the example, from which comments and all other values are taken.
    """
    head, rest = example.split("\n\n", 1)
    settings, rest = rest.split("\ngroups:\n", 1)
    group, nodes = rest.split("\n\n# One entry", 1)
    comment, *node_texts = re.split(r"^(?=  - name: )", nodes, flags=re.MULTILINE)
    count = len(wanted.addresses)
    texts = [
        _node(node_texts[0], wanted, name, index, place=number * count + index)
        for number, name in enumerate(wanted.group_names)
        for index in range(count)
    ]
    groups = "\n".join(_group(group, wanted, name) for name in wanted.group_names)
    return (
        f"{_head(head, wanted, file_name)}\n\n"
        f"{_settings(settings, wanted)}\ngroups:\n"
        f"{groups}\n\n# One entry{comment}"
        f"{''.join(texts)}"
    )


def _head(text: str, wanted: NewCluster, file_name: str) -> str:
    _first, *lines = text.split("\n")
    count = len(wanted.addresses)
    nodes = "one node" if count == 1 else f"{count} nodes"
    if wanted.kind is GroupKind.CLASSIC:
        what = "a master and its slaves" if count > 1 else "a master without slaves"
    else:
        what = "which elect their master" if count > 1 else "which nobody can replace"
    if wanted.groups_count > 1:
        nodes = f"{wanted.groups_count} groups of {nodes}"
        what = {"which elect their master": "which elect their masters"}.get(what, what)
    lines = [
        line.replace(CLUSTER_FILE, file_name).replace(_EXAMPLE_NODE, f"{wanted.group_names[0]}-0")
        for line in lines
    ]
    return "\n".join([f"# {wanted.name}: {nodes}, {what}.", *lines])


def _settings(text: str, wanted: NewCluster) -> str:
    text = _with_value(text, "cluster", "name", wanted.name)
    port = str(wanted.port + COORDINATOR_PORT_DISTANCE)
    text = _with_value(text, "coordinator", "port", port)
    if wanted.etcd_endpoints:
        text = _with_value(text, "coordinator", "kind", "etcd")
        endpoints = f"[{', '.join(wanted.etcd_endpoints)}]"
        text = _with_value(text, "coordinator", "endpoints", endpoints)
    return text


def _group(text: str, wanted: NewCluster, group: str) -> str:
    name, rest = text.split("\n", 1)
    rest = _with(rest, "kind", wanted.kind.value)
    if wanted.kind is GroupKind.CLASSIC:
        # The rest is of fenced groups alone.
        until = re.search(r"^    broker_role: .*$", rest, re.MULTILINE)
        assert until is not None
        rest = rest[: until.end()]
    else:
        rest = _with(rest, "min_isr", str(wanted.min_isr))
    return name.replace("broker-a", group) + "\n" + rest


def _node(text: str, wanted: NewCluster, group: str, index: int, *, place: int) -> str:
    """Return the entry of a node: `index` in its group, `place` among all."""
    address = wanted.addresses[index]
    # How many nodes before this one have the same address.
    every = wanted.addresses * wanted.groups_count
    shift = every[:place].count(address) * PORT_STEP
    port = wanted.port + shift
    is_fenced = wanted.kind is GroupKind.FENCED
    values = {
        "name": f"{group}-{index}",
        "group": group,
        "broker_id": str(index + is_fenced),
        "address": address,
        "port": str(port),
        "ha_port": str(port + 1),
        "replication_port": str(port + 2),
        "name_server_port": str(wanted.name_server_port + shift),
    }
    for key, value in values.items():
        text = _with(text, key, value)
    if not is_fenced:
        text = re.sub(r"^    replication_port: .*\n", "", text, flags=re.MULTILINE)
    return text


def _with_value(text: str, section: str, key: str, value: str) -> str:
    """Return `text` with another value of a section's key."""
    before, rest = re.split(rf"^(?={section}:$)", text, maxsplit=1, flags=re.MULTILINE)
    return before + _with(rest, key, value)


def _with(text: str, key: str, value: str) -> str:
    """Return `text` with another value where `key` comes first; its comment stays where it is."""
    pattern = rf"^(?P<before> +(?:- )?{key}: )(?P<value>\S+)(?P<room> *)"

    def changed(found: re.Match[str]) -> str:
        if not found["room"]:
            return found["before"] + value
        width = len(found["value"]) + len(found["room"])
        return found["before"] + f"{value} ".ljust(width)

    text, count = re.subn(pattern, changed, text, count=1, flags=re.MULTILINE)
    assert count == 1, f"the example has no {key}"
    return text
