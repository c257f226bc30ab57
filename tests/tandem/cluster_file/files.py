"""Cluster files that are as small as can be, and what is said about wrong ones."""

from pathlib import Path
from typing import Final

import pytest

from tandem.cluster_file.cluster_config import ClusterConfig
from tandem.cluster_file.errors import ClusterConfigError
from tandem.cluster_file.load import load_config

MINIMAL: Final = """\
groups:
  broker-a: {}
nodes:
  - name: broker-a-0
    group: broker-a
    broker_id: 0
    address: 127.0.0.1
  - name: broker-a-1
    group: broker-a
    broker_id: 1
    address: 127.0.0.2
"""

FENCED: Final = """\
groups:
  broker-a: {kind: fenced}
nodes:
  - {name: broker-a-0, group: broker-a, broker_id: 1, address: 127.0.0.1}
  - {name: broker-a-1, group: broker-a, broker_id: 2, address: 127.0.0.2}
  - {name: broker-a-2, group: broker-a, broker_id: 3, address: 127.0.0.3}
"""


def load(tmp_path: Path, text: str) -> ClusterConfig:
    file = tmp_path / "cluster.yaml"
    file.write_text(text, encoding="utf-8")
    return load_config(file)


def problems(tmp_path: Path, text: str) -> list[str]:
    with pytest.raises(ClusterConfigError) as caught:
        load(tmp_path, text)
    prefix = f"{tmp_path}/"
    return [problem.removeprefix(prefix) for problem in caught.value.problems]
