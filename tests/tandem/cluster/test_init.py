import subprocess
import sys

import pytest

import tandem.cluster
from tests.support.paths import ROOT


def test_every_public_name_is_there() -> None:
    for name in tandem.cluster.__all__:
        assert getattr(tandem.cluster, name).__name__ == name
        assert name in dir(tandem.cluster)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Cluster'"):
        tandem.cluster.__getattr__("Cluster")


@pytest.mark.slow
@pytest.mark.parametrize(
    "code",
    [
        "from tandem.cluster import read_spec; read_spec(Path('cluster.yaml'))",
        "import tandem.cluster.control",
    ],
)
def test_reading_a_cluster_file_loads_no_server_and_no_client(code: str) -> None:
    loaded = "{'trio', 'numpy', 'httpcore', 'tandem.client', 'node', 'ha', 'store'}"
    script = f"import sys; from pathlib import Path; {code}; print({loaded} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "set()"
