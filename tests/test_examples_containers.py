"""examples/containers: its files fit together; entry and health check run without a container."""

import http.server
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tandem.cluster_file.load import load_config
from tests.support.paths import ROOT
from tests.support.patience import PATIENCE_SECONDS, wait_until

CONTAINERS: Final = ROOT / "examples/containers"
COMPOSE: Final = yaml.safe_load((CONTAINERS / "compose.yaml").read_text())
MANIFESTS: Final = {
    (each["kind"], each["metadata"]["name"]): each
    for each in yaml.safe_load_all((CONTAINERS / "kubernetes/tandem.yaml").read_text())
}


def test_the_cluster_of_compose_can_be_read_and_has_the_addresses_of_its_services(
    tmp_path: Path,
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("0" * 64)
    secret.chmod(0o600)
    file = tmp_path / "cluster.yaml"
    text = (CONTAINERS / "cluster.yaml").read_text()
    file.write_text(text.replace("/run/secrets/cluster", str(secret)))
    config = load_config(file)
    services: dict[str, Any] = COMPOSE["services"]
    addresses = {
        name: service["networks"]["tandem"]["ipv4_address"] for name, service in services.items()
    }
    assert {node.name: node.address for node in config.nodes} == {
        name: address for name, address in addresses.items() if name.startswith("broker")
    }
    etcd = [f"http://{address}:2379" for name, address in addresses.items() if "etcd" in name]
    assert list(config.coordinator.endpoints) == etcd
    for name, service in services.items():
        if name.startswith("broker"):
            assert service["environment"]["TANDEM_NODE"] == name
        else:
            assert f"--name={name}" in service["command"]
            assert f"--advertise-client-urls=http://{addresses[name]}:2379" in service["command"]


def test_the_manifests_fit_together() -> None:
    pods = MANIFESTS["StatefulSet", "broker-a"]["spec"]
    labels = pods["template"]["metadata"]["labels"]
    assert pods["selector"]["matchLabels"] == labels
    assert MANIFESTS["Service", "broker-a"]["spec"]["selector"] == labels
    budget = MANIFESTS["PodDisruptionBudget", "broker-a"]["spec"]
    assert (budget["selector"]["matchLabels"], budget["maxUnavailable"]) == (labels, 1)
    spec = pods["template"]["spec"]
    volumes = {each["name"] for each in spec["volumes"]}
    volumes |= {each["metadata"]["name"] for each in pods["volumeClaimTemplates"]}
    for container in (*spec["initContainers"], *spec["containers"]):
        assert {each["name"] for each in container["volumeMounts"]} <= volumes
    claims = {
        each["spec"]["claimRef"]["name"]
        for (kind, _), each in MANIFESTS.items()
        if kind == "PersistentVolume"
    }
    assert claims == {f"data-broker-a-{number}" for number in range(pods["replicas"])}
    assert spec["securityContext"]["runAsNonRoot"]


def test_the_manifests_are_as_the_schemas_of_kubernetes_say() -> None:
    validate = pytest.importorskip("kubernetes_validate", reason="pip install kubernetes-validate")
    for each in MANIFESTS.values():
        validate.validate(each, validate.latest_version(), strict=True)


def test_the_image_is_of_the_base_that_is_given_and_not_roots() -> None:
    text = (CONTAINERS / "Containerfile").read_text()
    assert re.findall(r"^FROM (\S+)", text, re.MULTILINE) == ["${BASE}"] * 2
    assert re.findall(r"^USER (\S+)", text, re.MULTILINE) == ["10001:10001"]
    assert "\nHEALTHCHECK " in text
    (copied,) = re.findall(r"^COPY (examples/.*) /usr/local/bin/$", text, re.MULTILINE)
    for name in re.findall(r"examples/containers/(\w+)", copied):
        assert os.access(CONTAINERS / name, os.X_OK)


STAND_IN: Final = """\
#!/bin/bash
if [[ "$0" == */tandem ]]; then echo "left $3" >> "$SAID"; exit 1; fi
trap 'echo terminated >> "$SAID"; exit 7' TERM
echo "started ${*: -1}" >> "$SAID"
while true; do sleep 0.1 & wait $!; done
"""
"""In place of Python and of `tandem`: says what it is asked, and goes on until SIGTERM."""


def test_sigterm_has_a_master_hand_over_first_and_the_status_is_the_nodes(tmp_path: Path) -> None:
    said = tmp_path / "said"
    for name in ("tandem", "python3"):
        (tmp_path / name).write_text(STAND_IN)
        (tmp_path / name).chmod(0o755)
    environment = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "TANDEM_NODE": "broker-a-0",
        "SAID": str(said),
    }
    said.touch()
    with subprocess.Popen([CONTAINERS / "entrypoint"], env=environment) as entry:
        wait_until(lambda: said.read_text() == "started broker-a-0\n")
        entry.send_signal(signal.SIGTERM)
        # That it could not hand over, status 1, does not keep it from being stopped.
        assert entry.wait(PATIENCE_SECONDS) == 7
    assert said.read_text() == "started broker-a-0\nleft broker-a-0\nterminated\n"


def test_without_a_node_nothing_is_started(tmp_path: Path) -> None:
    done = subprocess.run(
        [CONTAINERS / "entrypoint"],
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert "TANDEM_NODE=broker-a-0" in done.stderr


@contextmanager
def serving(status: int) -> Iterator[str]:
    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/livez" else 404)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Answer)
    with server, ThreadPoolExecutor() as pool:
        pool.submit(server.serve_forever, 0.01)
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


@pytest.mark.parametrize(("status", "expected"), [(200, 0), (503, 1)])
def test_the_health_check_is_that_of_the_node(status: int, expected: int) -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    with serving(status) as place:
        done = subprocess.run(
            [CONTAINERS / "healthy"],
            env={"PATH": path, "TANDEM_METRICS": place},
            capture_output=True,
            check=False,
        )
    assert done.returncode == expected
