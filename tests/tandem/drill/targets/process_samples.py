"""Files of a target `processes`, for tests."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from tandem.drill.targets.process_file import ProcessFile, read_process_file

COMMANDS: Final = {
    "find": "cat $NODE.pid",
    "start": "true",
    "stop": "true",
    "kill": "true",
    "freeze": "true",
    "resume": "true",
}


def document(**changes: Any) -> dict[str, Any]:  # noqa: ANN401 - anything may be in a file
    """What a file with two nodes says, with other values of some keys; None takes one out."""
    whole = {
        "kind": "classic",
        "group": "broker-a",
        "name_servers": ["127.0.0.1:9876"],
        "commands": COMMANDS,
        "nodes": [
            {"name": "a", "address": "127.0.0.1", "port": 10911, "store": "a"},
            {"name": "b", "address": "127.0.0.1", "port": 10921, "store": "b"},
        ],
    } | changes
    return {key: value for key, value in whole.items() if value is not None}


def write(directory: Path, content: Mapping[str, Any]) -> Path:
    """Write a file, and return where it is."""
    file = directory / "cluster.drill.yaml"
    file.write_text(yaml.safe_dump(dict(content), sort_keys=False), encoding="utf-8")
    return file


def read(directory: Path, **changes: Any) -> ProcessFile:  # noqa: ANN401 - see above
    """Write and read a file."""
    return read_process_file(write(directory, document(**changes)))
