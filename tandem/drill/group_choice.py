"""Which groups of a cluster are drilled, and which of them is hurt.

One group is hurt, by name or by chance; load and audit are on every group. `--groups N` makes N of
the one group of a cluster file, as `tandem cluster init --groups N` names and places them.
"""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from string import ascii_lowercase
from typing import Any, Final

import yaml

from tandem.cluster.new_file import PORT_STEP
from tandem.cluster.spec import CLUSTER_FILE, ClusterSpec, read_spec
from tandem.drill.errors import BadOptionsError, NoPromiseError
from tandem.drill.preflight import Group, group_of

_PORTS: Final = ("port", "ha_port", "replication_port", "name_server_port")


def read_groups(config: Path, count: int) -> ClusterSpec:
    """Read a cluster file, with `count` of its one group if that is above 1.

    Raises:
        ClusterError, NoPromiseError: it is wrong, or has several groups already.
    """
    spec = read_spec(config)
    if count == 1:
        return spec
    if len(spec.groups) != 1:
        raise NoPromiseError(
            f"{config}: has {len(spec.groups)} groups; leave --groups out, which makes several of"
            " one",
            "groups",
        )
    document = multiplied(yaml.safe_load(config.read_text(encoding="utf-8")), count)
    with tempfile.TemporaryDirectory(prefix="tandem-drill-") as directory:
        made = Path(directory, CLUSTER_FILE)
        made.write_text(yaml.safe_dump(document), encoding="utf-8")
        return read_spec(made)


def multiplied(document: Mapping[str, Any], count: int) -> dict[str, Any]:
    """Return the content of a cluster file of one group with that many groups like it.

    The nodes of each are at the addresses of the first group's, with ports of their own.
    """
    if count == 1:
        return dict(document)
    ((first, settings),) = document["groups"].items()
    stem = str(first).removesuffix("-a")
    others = [f"{stem}-{letter}" for letter in ascii_lowercase[1:count]]
    nodes = list(document["nodes"])
    for number, name in enumerate(others, start=1):
        # Away from all ports of the file, those of the coordinator and of nodes beside it, too.
        shift = number * PORT_STEP * len(document["nodes"])
        nodes += [
            _another(node, name, index, shift) for index, node in enumerate(document["nodes"])
        ]
    return {
        **document,
        "groups": {first: settings, **dict.fromkeys(others, settings)},
        "nodes": nodes,
    }


def _another(node: Mapping[str, Any], group: str, index: int, shift: int) -> dict[str, Any]:
    kept = {key: value for key, value in node.items() if key not in ("directory", "reach")}
    ports = {key: node[key] + shift for key in _PORTS if key in node}
    return {**kept, "group": group, "name": f"{group}-{index}", **ports}


def choose_groups(spec: ClusterSpec, wanted: str, seed: int) -> list[Group]:
    """Return all groups, and first the one to hurt: `wanted`, or by chance if that is empty.

    Raises:
        BadOptionsError: there is no such group.
        NoPromiseError: there is nothing to lose: a group whose sends wait for no other node.
    """
    names = list(spec.groups)
    if wanted and wanted not in names:
        raise BadOptionsError(f"--group {wanted}: {spec.file} has {', '.join(names)}")
    hurt = wanted or _by_chance(names, seed)
    return [group_of(spec, name) for name in sorted(names, key=lambda name: name != hurt)]


def _by_chance(names: Sequence[str], seed: int) -> str:
    return Random(seed).choice(sorted(names))
