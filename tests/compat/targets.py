"""What scenarios run against: RocketMQ's broker and name server, and both kinds of our group."""

import secrets
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal, get_args

import msgspec

from tandem.client import BlockingAdmin, ClientError, ClusterAccess
from tandem.testing import running_cluster, running_fenced_cluster
from tandem.tls_files import TLSFiles
from tandem.wire.secret_keys import OPERATOR_ACCESS_KEY, operator_secret_key
from tests.compat.programs import classpath, java_command
from tests.compat.users import KEYS, Keys, Role, make_users

TargetName = Literal["real", "classic", "fenced"]
TARGET_NAMES: Final[tuple[TargetName, ...]] = get_args(TargetName)

CLUSTER: Final = "DefaultCluster"
BROKER: Final = "broker-a"
START_SECONDS_MAX: Final = 240.0
QUIET: Final = '<configuration><root level="OFF"/></configuration>'
POLL_SECONDS: Final = 0.1


class Target(msgspec.Struct, frozen=True):
    """Something that serves. `name_servers` as RocketMQ's clients take it, with ';' between.

    Who has keys signs with them.
    """

    name: TargetName
    name_servers: str
    cluster: str = CLUSTER
    broker: str = BROKER
    keys: Mapping[Role, Keys] = {}
    tls: TLSFiles | None = None

    @property
    def has_users(self) -> bool:
        """Whether it serves nobody else."""
        return "application" in self.keys

    @property
    def access(self) -> ClusterAccess:
        """What our own client takes."""
        keys = self.keys.get("application", ("", ""))
        # RocketMQ's own broker knows no other signature than its own.
        return ClusterAccess(self.name_servers, *keys, signatures="any", tls=self.tls)

    @property
    def java_options(self) -> list[str]:
        """What RocketMQ's programs need to sign, and to speak TLS with certificates checked."""
        return [*self._signing_options, *self._tls_options]

    @property
    def _signing_options(self) -> list[str]:
        options = []
        for role, (access_key, secret_key) in self.keys.items():
            options += [f"-D{role}.accessKey={access_key}", f"-D{role}.secretKey={secret_key}"]
        return options

    @property
    def _tls_options(self) -> list[str]:
        if self.tls is None:
            return []
        return [
            "-Dtls.enable=true",
            "-Dtls.test.mode.enable=false",
            "-Dtls.client.authServer=true",
            f"-Dtls.client.trustCertPath={self.tls.ca_file}",
            f"-Dtls.client.certPath={self.tls.certificate_file}",
            f"-Dtls.client.keyPath={self.tls.key_file}",
        ]


class Guarded(msgspec.Struct, frozen=True):
    """What a target asks of its clients.

    `with_tls`: ours takes no connection without, and asks for a certificate. `with_users`: nothing
    is served but to users, who may what the table needs; RocketMQ is asked for that, too.
    """

    with_tls: bool = False
    with_users: bool = False


OPEN: Final = Guarded()


@contextmanager
def running_target(name: TargetName, directory: Path, guarded: Guarded = OPEN) -> Iterator[Target]:
    """Have a target up in a directory while the block runs.

    Raises:
        NotToBeHadError: RocketMQ cannot be fetched.
        TimeoutError: It does not start, or a node does not know the users.
    """
    if name == "real":
        jars = classpath("pom.xml", "tools")
        with running_rocketmq(directory, jars, with_users=guarded.with_users) as target:
            yield target
        return
    run = running_cluster if name == "classic" else running_fenced_cluster
    settings = dict(settings_of_ours())
    if guarded.with_tls:
        settings["tls"] = {"mode": "enforcing", "client_auth": "require"}
    if guarded.with_users:
        settings["security"] = {"clients": "authorized"}
    with run(directory, settings=settings) as cluster:
        target = Target(
            name,
            ";".join(cluster.name_servers),
            keys={"tools": Keys(OPERATOR_ACCESS_KEY, operator_secret_key(cluster.secret))},
            tls=cluster.spec.tls,
        )
        yield with_table_users(target, cluster.access) if guarded.with_users else target


def with_table_users(target: Target, access: ClusterAccess) -> Target:
    """Make the users of the table; return the target with their keys."""
    make_users(access)
    return msgspec.structs.replace(target, keys=KEYS)


def settings_of_ours() -> Mapping[str, Mapping[str, Any]]:
    """As far from a test's small sizes as programs with defaults need."""
    store: dict[str, Any] = {
        "mapped_file_size_commit_log_bytes": 134_217_728,
        "mapped_file_size_consume_queue_bytes": 600_000,
        "max_message_size_bytes": 4_194_304,
        "timer_wheel_enable": True,
    }
    broker = {
        "enable_property_filter": True,
        "recall_message_enable": True,
        "grpc_enable": True,
        "transaction_check_interval_ms": 3_000,
        "transaction_timeout_ms": 3_000,
    }
    return {"store": store, "broker": broker}


BROKER_SETTINGS: Final = {
    "brokerClusterName": CLUSTER,
    "brokerName": BROKER,
    "brokerId": "0",
    "brokerRole": "ASYNC_MASTER",
    "flushDiskType": "ASYNC_FLUSH",
    "listenPort": "10911",
    "mappedFileSizeCommitLog": "134217728",
    "mappedFileSizeConsumeQueue": "6000000",
    "maxHashSlotNum": "500000",
    "maxIndexNum": "2000000",
    "mappedFileSizeTimerLog": "10485760",
    "timerPrecisionMs": "1000",
    # What these are set to here is what an application or a tool of the table needs.
    "enablePropertyFilter": "true",
    "recallMessageEnable": "true",
    "traceTopicEnable": "true",
    "transactionTimeOut": "3000",
    "transactionCheckInterval": "3000",
    "registerNameServerPeriod": "10000",
    "diskMaxUsedSpaceRatio": "95",
    "warmMapedFileEnable": "false",
    "transferMsgByHeap": "true",
    "brokerFastFailureEnable": "false",
}


ADMIN: Final = Keys("admin", "secret-of-admin")
_AUTH: Final = "org.apache.rocketmq.auth"

USERS_SETTINGS: Final = {
    "authenticationEnabled": "true",
    "authenticationProvider": f"{_AUTH}.authentication.provider.DefaultAuthenticationProvider",
    "authenticationMetadataProvider": (
        f"{_AUTH}.authentication.provider.LocalAuthenticationMetadataProvider"
    ),
    "authorizationEnabled": "true",
    "authorizationProvider": f"{_AUTH}.authorization.provider.DefaultAuthorizationProvider",
    "authorizationMetadataProvider": (
        f"{_AUTH}.authorization.provider.LocalAuthorizationMetadataProvider"
    ),
    "initAuthenticationUser": (
        f'{{"username":"{ADMIN.access_key}","password":"{ADMIN.secret_key}"}}'
    ),
    "innerClientAuthenticationCredentials": ('{"accessKey":"inner","secretKey":"secret-of-inner"}'),
}


@contextmanager
def running_rocketmq(
    directory: Path,
    jars: str,
    *,
    server_port: int = 9876,
    port: int = 10_911,
    with_users: bool = False,
    settings: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[Target]:
    """Have RocketMQ's broker and name server of some version up while the block runs.

    Those of 4.x listen at these ports of all addresses, and the broker at `port` - 2. Only 5.3 can
    have the users of the table. `settings` are the broker's, besides those of the table.

    Raises:
        TimeoutError: It does not start.
    """
    address = f"127.{1 + secrets.randbelow(254)}.{secrets.randbelow(256)}.1"
    server_home, broker_home = directory / "name-server", directory / "broker"
    for home in (server_home, broker_home):
        (home / "conf").mkdir(parents=True)
        # Versions of 4.x do not start without a configuration of their logs.
        for program in ("namesrv", "broker"):
            (home / "conf" / f"logback_{program}.xml").write_text(QUIET)
    server = {
        "bindAddress": address,
        "listenPort": str(server_port),
        "rocketmqHome": str(server_home),
        "kvConfigPath": str(server_home / "kvConfig.json"),
        "configStorePath": str(server_home / "namesrv.properties"),
    }
    broker = BROKER_SETTINGS | {
        "namesrvAddr": f"{address}:{server_port}",
        "listenPort": str(port),
        "bindAddress": address,
        "brokerIP1": address,
        "brokerIP2": address,
        # This port is taken on all addresses.
        "haListenPort": str(20_000 + secrets.randbelow(20_000)),
        "storePathRootDir": str(broker_home / "store"),
        "storePathCommitLog": str(broker_home / "store" / "commitlog"),
    }
    if with_users:
        broker |= USERS_SETTINGS
    broker |= settings
    with ExitStack() as stack:
        _start(stack, jars, server_home, "org.apache.rocketmq.namesrv.NamesrvStartup", server)
        _start(stack, jars, broker_home, "org.apache.rocketmq.broker.BrokerStartup", broker)
        _wait_until_registered(f"{address}:{server_port}")
        target = Target("real", f"{address}:{server_port}")
        access = ClusterAccess(target.name_servers, *ADMIN, signatures="any")
        yield with_table_users(target, access) if with_users else target


def _wait_until_registered(name_server: str) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    with BlockingAdmin([name_server]) as admin:
        while not _is_registered(admin):
            if time.monotonic() > deadline:
                raise TimeoutError(f"the name server does not know {BROKER}")
            time.sleep(POLL_SECONDS)  # noqa: TID251 - waits for another process


def _is_registered(admin: BlockingAdmin) -> bool:
    try:
        return BROKER in admin.cluster_info().broker_addr_table
    except ClientError:
        return False  # a busy machine: it does not answer in time


def _start(
    stack: ExitStack, jars: str, home: Path, program: str, properties: Mapping[str, str]
) -> None:
    process = start_program(jars, home, program, properties)
    stack.callback(process.wait)
    stack.callback(process.kill)


def start_program(
    jars: str, home: Path, program: str, properties: Mapping[str, str]
) -> "subprocess.Popen[bytes]":
    """Start a program of RocketMQ's; return it when it serves.

    Raises:
        TimeoutError: It does not start.
    """
    written = home / "given.properties"
    written.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    said = home / "said"
    command = [*java_command(jars, home), program, "-c", str(written)]
    with said.open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=home)
    deadline = time.monotonic() + START_SECONDS_MAX
    while "boot success" not in said.read_text(errors="replace"):
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            process.wait()
            raise TimeoutError(f"{program} does not start: {said.read_text()[-600:]}")
        time.sleep(POLL_SECONDS)  # noqa: TID251 - waits for another process
    return process
