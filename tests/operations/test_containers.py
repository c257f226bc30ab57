"""examples/containers for real: the image is built, and three nodes run in containers of it.

Needs root, `podman`, `runc` and `debootstrap`; of these the base image is made, which pulls nothing
from a registry of images. `pip` in it finds packages as it does here.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

import tandem
from tandem.testing.addresses import Network, claimed_network
from tests.faults.etcd_world import coordinator
from tests.support.log_builder import LogBuilder
from tests.support.page_blocks import read_page
from tests.support.paths import ROOT
from tests.support.patience import wait_until
from tests.tandem.coordinator.real_etcd import running_etcd

pytestmark = [
    pytest.mark.fault,
    pytest.mark.long,
    pytest.mark.slow,
    pytest.mark.timeout(3_600),
    pytest.mark.xdist_group("containers"),
]

PAGE: Final = ROOT / "docs/spark-cluster.md"
TOOLS: Final = ("podman", "runc", "debootstrap")
BASE: Final = "localhost/tandem-test-base"
IMAGE: Final = "localhost/tandem-test"
BASE_WITH_JAVA: Final = "localhost/tandem-test-java"
SPARK_IMAGE: Final = "localhost/tandem-test-spark"
NODES: Final = ("broker-a-0", "broker-a-1", "broker-a-2")
USER: Final = 10_001
FILE: Final = "/etc/tandem/cluster.yaml"
# A kernel that still has the first version of control groups takes runc alone.
PODMAN: Final = ("podman", "--runtime=runc", "--cgroup-manager=cgroupfs")
HARDENED: Final = (
    *("--read-only", "--tmpfs=/tmp", "--cap-drop=ALL", "--security-opt=no-new-privileges"),
    *("--ulimit=nofile=8192:8192", "--ulimit=nproc=1024:1024"),
)


def podman(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*PODMAN, *arguments], capture_output=True, text=True, check=False, cwd="/"
    )
    assert not check or done.returncode == 0, f"{arguments}\n{done.stdout}\n{done.stderr}"
    return done


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What this checkout has committed, and a base image."""
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing or os.geteuid() != 0:
        pytest.skip(f"needs root and, of Debian's packages, {', '.join(missing or TOOLS)}")
    place = tmp_path_factory.mktemp("image")
    if podman("image", "exists", BASE, check=False).returncode:
        make_base(place / "base")
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(place / "tandem")], check=True)
    return place / "tandem"


@pytest.fixture(scope="module")
def image(checkout: Path) -> str:
    """The image of a node, as the page builds it."""
    build(IMAGE, BASE, checkout / "examples/containers/Containerfile", checkout)
    return IMAGE


@pytest.fixture(scope="module")
def spark_image(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The image of Spark, of a base with Java."""
    place = tmp_path_factory.mktemp("java")
    install = "apt-get install -y --no-install-recommends openjdk-17-jre-headless procps"
    (place / "Containerfile").write_text(
        f"FROM {BASE}\nRUN apt-get update && mkdir -p /usr/share/man/man1 && {install}\n"
    )
    build(BASE_WITH_JAVA, BASE, place / "Containerfile", place)
    file = checkout / "examples/containers/Containerfile.spark"
    build(SPARK_IMAGE, BASE_WITH_JAVA, file, checkout)
    return SPARK_IMAGE


def build(tag: str, base: str, file: Path, context: Path) -> None:
    """Build an image, with packages from where this machine has them."""
    given = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    own = {"/etc/pip.conf": "/etc/pip.conf"}
    if "PIP_CERT" in given:
        own[given["PIP_CERT"]] = given["PIP_CERT"] = "/opt/given-certificates.pem"
    podman(
        *("build", "--quiet", "--format=docker", "--isolation=chroot", f"--build-arg=BASE={base}"),
        *(f"--env={name}={value}" for name, value in given.items()),
        *(f"--volume={here}:{there}:ro" for here, there in own.items() if Path(here).exists()),
        *("--tag", tag, "--file", str(file), str(context)),
    )


def make_base(directory: Path) -> None:
    """Import Debian with a Python as the base image, from where this machine has its packages."""
    sources = Path("/etc/apt/sources.list.d/debian.sources")
    mirror = (
        [line.split()[1] for line in sources.read_text().splitlines() if line.startswith("URIs:")][
            :1
        ]
        if sources.exists()
        else []
    )
    packages = "--include=python3,python3-venv,ca-certificates"
    made = subprocess.run(
        ["debootstrap", "--variant=minbase", packages, "bookworm", str(directory), *mirror],
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stdout[-2_000:]
    with subprocess.Popen(["tar", "-C", directory, "-c", "."], stdout=subprocess.PIPE) as tar:
        subprocess.run([*PODMAN, "import", "--quiet", "-", BASE], stdin=tar.stdout, check=True)
    shutil.rmtree(directory)


@contextmanager
def three_nodes(directory: Path, image: str, network: Network) -> Iterator[Path]:
    """Three containers of one group, on the network of this machine; the file of the group."""
    with running_etcd(directory) as members:
        secret = directory / "secret"
        secret.write_text("5" * 64)
        secret.chmod(0o600)
        os.chown(secret, USER, USER)
        file = directory / "cluster.yaml"
        addresses = {name: network.address(number) for number, name in enumerate(NODES, 1)}
        document: dict[str, Any] = {
            "cluster": {"data_directory": "/var/lib/tandem", "secret_file": "/run/secrets/cluster"},
            "coordinator": coordinator(members),
            "metrics": {"port": 5557},
            "groups": {"broker-a": {"kind": "fenced", "min_isr": 2}},
            "nodes": [
                {"name": name, "group": "broker-a", "broker_id": number, "address": address}
                for number, (name, address) in enumerate(addresses.items(), 1)
            ],
        }
        file.write_text(yaml.safe_dump(document))
        try:
            for name, address in addresses.items():
                podman(
                    *("run", "--detach", f"--name={name}", "--network=host", *HARDENED),
                    *(f"--env=TANDEM_NODE={name}", f"--env=TANDEM_METRICS={address}:5557"),
                    *(f"--volume={file}:{FILE}:ro", f"--volume={secret}:/run/secrets/cluster:ro"),
                    *(f"--volume={name}:/var/lib/tandem", image),
                )
            yield file
        finally:
            podman("rm", "--force", "--ignore", *NODES)
            podman("volume", "rm", "--force", *NODES, check=False)


def status(asked: str) -> dict[str, Any]:
    """What `tandem ha status` in a container says of the group."""
    done = podman(
        "exec", asked, "tandem", "ha", "status", "--config", FILE, "--format", "json", check=False
    )
    groups: list[dict[str, Any]] = json.loads(done.stdout)["groups"] if done.stdout else [{}]
    return groups[0]


def is_well(asked: str) -> bool:
    command = ("exec", asked, "tandem", "ha", "status", "--config", FILE, "--check")
    return podman(*command, check=False).returncode == 0


def test_a_group_in_containers_hands_over_when_its_master_is_stopped(
    tmp_path: Path, image: str
) -> None:
    with claimed_network() as network, three_nodes(tmp_path, image, network):
        wait_until(lambda: is_well(NODES[0]))
        servers = [f"{network.address(number)}:9876" for number in (1, 2, 3)]
        assert podman("exec", NODES[0], "id", "-u").stdout.strip() == str(USER)
        for name in NODES:
            podman("healthcheck", "run", name)
        podman("exec", NODES[0], "tandem", "topic", "create", "Orders", "--config", FILE)

        with tandem.BlockingProducer(servers, group="shop") as producer:
            before = producer.send(tandem.Message("Orders", b"one"))
            assert before.status == tandem.SendStatus.SEND_OK
            master = str(status(NODES[0])["master"])
            other = next(name for name in NODES if name != master)

            podman("stop", "--time", "60", master)

            # What `tandem node leave` has said: who is master, before the node stopped.
            logs = podman("logs", master)
            now = str(status(other)["master"])
            assert now not in ("", master)
            assert now in logs.stdout, logs
            after = producer.send(tandem.Message("Orders", b"two"))
            assert after.status == tandem.SendStatus.SEND_OK

            podman("start", master)
            wait_until(lambda: is_well(other))
        found = podman(
            *("exec", other, "tandem", "consume", "Orders", "--config", FILE),
            *("--from", "earliest", "--max", "2", "--format", "text"),
        )
        assert sorted(found.stdout.split()) == ["one", "two"]


COUNT: Final = 400
SPARK: Final = "exec $(python3 -c 'import pyspark; print(pyspark.__path__[0])')/bin/spark-class"
DEPLOY: Final = "org.apache.spark.deploy"


def test_spark_in_containers_knows_the_formats_and_nothing_is_sent_to_it(
    tmp_path: Path, spark_image: str
) -> None:
    """A master, a worker and a driver, each in a container of the image of the page."""
    log = LogBuilder(file_bytes=65_536)
    for number in range(COUNT):
        log.put(topic="orders", body=bytes(200), queue_id=number % 3)
    log.write(tmp_path / "broker-a-0")
    (job,) = (b.text for b in read_page(PAGE) if b.marks.get("file") == "job.py")
    (tmp_path / "job.py").write_text(job)
    tmp_path.chmod(0o755)
    limits = ("--ulimit=nofile=8192:8192", "--ulimit=nproc=4096:4096")
    with claimed_network() as network, ExitStack() as stack:
        host = network.address(1)
        run = ("run", "--network=host", f"--env=SPARK_LOCAL_IP={host}", *limits)
        master = f"{SPARK} {DEPLOY}.master.Master --host {host} --port 7077 --webui-port 0"
        worker = f"{SPARK} {DEPLOY}.worker.Worker --host {host} --webui-port 0 -c 1 -m 1g"
        volume = f"--volume={tmp_path}:/shared:ro"
        for name, command in (("spark-master", master), ("spark-worker", worker)):
            stack.callback(podman, "rm", "--force", "--ignore", name)
            where = f" -d /tmp spark://{host}:7077" if name == "spark-worker" else ""
            podman(
                *(*run, "--detach", f"--name={name}", volume, spark_image),
                *("sh", "-c", command + where),
            )
        wait_until(lambda: "Registering worker" in podman("logs", "spark-master").stderr)
        done = podman(
            *(*run, "--rm", volume, spark_image),
            *("spark-submit", "--master", f"spark://{host}:7077"),
            *("--conf", f"spark.driver.host={host}", "/shared/job.py", "/shared/broker-a-0"),
        )
    assert "Traceback" not in done.stderr, done.stderr
    assert f"|orders|  {COUNT}|" in done.stdout, done.stdout
