"""gRPC clients over TLS, and as users who sign: who may, who may not, and who is somebody else."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from tandem.testing import running_cluster, running_fenced_cluster
from tests.compat.agents import OrderError, refusal, unique
from tests.compat.grpc_places import Place
from tests.compat.grpc_scenarios import normal_messages, push_fails_once
from tests.compat.grpc_scene import Scene, same
from tests.compat.programs import classpath
from tests.compat.proxy import running_proxy
from tests.compat.targets import (
    ADMIN,
    USERS_SETTINGS,
    Target,
    running_rocketmq,
    settings_of_ours,
    with_table_users,
)
from tests.compat.users import KEYS
from tests.support import certificates

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tests.compat.agents import Agent
    from tests.compat.grpc_places import PlaceName
    from tests.compat.users import Keys

_OF_A_PROXY: Final = "org.apache.rocketmq.proxy.auth"
_AUTHENTICATION: Final = f"{_OF_A_PROXY}.ProxyAuthenticationMetadataProvider"
_AUTHORIZATION: Final = f"{_OF_A_PROXY}.ProxyAuthorizationMetadataProvider"
# A broker 5.3.3 that asks for rights answers each pop of a proxy at once with POLLING_TIMEOUT
# (apache/rocketmq#9176, #9862): the proxy leaves the time of birth to it, and the check keeps the
# header as it was before (RemotingCommand.cachedHeader). So it asks who signs, and the proxy asks
# for rights.
_OF_ITS_BROKER: Final = MappingProxyType({"authorizationEnabled": "false"})
# What it keeps of topics that are not there yet, it would keep for 20 s.
_QUICK: Final = MappingProxyType(
    {"topicRouteServiceCacheRefreshSeconds": 1, "metadataThreadPoolNums": 2}
)


class GuardedScene(Scene):
    """An application that signs; groups are made by their first use."""

    def group(self, *, in_order: bool = False, retries: int = 16) -> str:
        assert (in_order, retries) == (False, 16)
        return unique("grpc-group")


@contextmanager
def running_tls_place(name: PlaceName, directory: Path) -> Iterator[tuple[Place, Path]]:
    """Have one up that speaks TLS, with a CA of its own; yield it and the file of the CA."""
    if name == "real":
        files = certificates.files("proxy", "127.0.0.1")
        with running_rocketmq(directory, classpath("pom.xml", "tools")) as target:
            settings = {
                **_QUICK,
                "tlsTestModeEnable": False,
                "tlsKeyPath": files.key_file,
                "tlsCertPath": files.certificate_file,
            }
            with running_proxy(directory, target.name_servers, settings) as proxy:
                yield Place(name, proxy.grpc, target), Path(files.ca_file)
        return
    run = running_cluster if name == "classic" else running_fenced_cluster
    tls = {"tls": {"mode": "permissive"}}
    with run(directory, settings={**settings_of_ours(), **tls}) as cluster:
        assert cluster.spec.tls is not None
        target = Target(name, ";".join(cluster.name_servers), tls=cluster.spec.tls)
        ca_file = Path(cluster.spec.tls.ca_file)
        yield Place(name, cluster.name_servers[-1], target), ca_file


@contextmanager
def running_guarded_proxy(directory: Path, target: Target, keys: Keys) -> Iterator[str]:
    """Have a proxy up that asks for rights; yield where. `keys`: of who may everything there."""
    settings = {
        **USERS_SETTINGS,
        **_QUICK,
        "authenticationMetadataProvider": _AUTHENTICATION,
        "authorizationMetadataProvider": _AUTHORIZATION,
        "enableAclRpcHookForClusterMode": True,
    }
    with running_proxy(directory, target.name_servers, settings, keys) as proxy:
        yield proxy.grpc


@contextmanager
def running_place_with_users(name: PlaceName, directory: Path) -> Iterator[Place]:
    """Have one up that serves the users of the table alone."""
    if name == "real":
        jars = classpath("pom.xml", "tools")
        broker = running_rocketmq(directory, jars, with_users=True, settings=_OF_ITS_BROKER)
        with broker as target, running_guarded_proxy(directory, target, ADMIN) as endpoints:
            yield Place(name, endpoints, target)
        return
    run = running_cluster if name == "classic" else running_fenced_cluster
    users = {"security": {"clients": "authorized"}}
    with run(directory, settings={**settings_of_ours(), **users}) as cluster:
        target = with_table_users(Target(name, ";".join(cluster.name_servers)), cluster.access)
        yield Place(name, cluster.name_servers[-1], target)


def other_ca(scene: Scene, make_agent: Callable[[Path], Agent]) -> None:
    """A client that believes another CA alone reaches nobody."""
    agent = make_agent(Path(certificates.files("other", ca="other").ca_file))
    topic = scene.topic()
    name = unique("producer")
    words = {**scene.words, "timeout_s": 5}
    said = refusal(agent, "producer", name=name, topics=[topic], check="", **words)
    if not said:
        said = refusal(agent, "send", name=name, message={"topic": topic, "body": "lost"})
    assert said, "it speaks with somebody whom it does not know, or hangs"


TLS_SCENARIOS: Final[Mapping[str, Callable[[Scene], None]]] = {
    "TLS: 8 messages arrive": normal_messages,
    "TLS: push, one message fails once": push_fails_once,
}
TLS_OTHER_CA: Final = "TLS: a certificate of another CA is refused"


def _as(scene: Scene, role: str, secret: str = "") -> GuardedScene:
    access_key, secret_key = KEYS[role]  # type: ignore[index]
    return GuardedScene(scene.place, scene.agent, keys=[access_key, secret or secret_key])


def a_user_may(scene: Scene) -> None:
    own = _as(scene, "application")
    normal_messages(own)
    own.close()


def a_user_is_pushed_to(scene: Scene) -> None:
    own = _as(scene, "application")
    push_fails_once(own)
    own.close()


def _refused(scene: Scene, topic: str) -> str:
    """What is said to a producer, at its start or at its first send."""
    try:
        producer = scene.producer(topic)
        scene.send(producer, topic, "mine")
    except OrderError as error:
        return str(error)
    return ""


def wrong_secret(scene: Scene) -> None:
    topic = _as(scene, "application").topic()
    _check_unauthorized(scene, _refused(_as(scene, "application", "wrong"), topic))
    assert not _refused(_as(scene, "application"), topic), "the right one is refused, too"


def unknown_user(scene: Scene) -> None:
    topic = _as(scene, "application").topic()
    nobody = GuardedScene(scene.place, scene.agent, keys=["nobody", "secret-of-nobody"])
    _check_unauthorized(scene, _refused(nobody, topic))
    assert not _refused(_as(scene, "application"), topic), "who is known is refused, too"


def _check_unauthorized(scene: Scene, said: str) -> None:
    assert said, "it is taken"
    # The other two say that they have no route, and not why.
    if scene.agent.language in ("java", "go", "rust"):
        assert "40100" in said or "UNAUTHORIZED" in said.upper(), f"it said {said!r}"


def may_not_send(scene: Scene) -> None:
    """Who may consume may not send, and who may send may not consume."""
    own = _as(scene, "application")
    topic, group = own.topic(), own.group()
    consumer = own.simple(group, topic)
    _check_forbidden(scene, _refused(_as(scene, "consumer"), topic))
    own.send(own.producer(topic), topic, "allowed")
    found = own.receive_until(consumer, 1)
    same((each["body"] for each in found), ["allowed"])
    own.close()


def may_not_receive(scene: Scene) -> None:
    own = _as(scene, "application")
    topic, group = own.topic(), own.group()
    sender = _as(scene, "producer")
    sender.send(sender.producer(topic), topic, "sent")
    said, found = "", []
    try:
        consumer = sender._made("simple", group=group, topic=topic, await_s=sender.await_s)
        found = sender.receive(consumer)
    except OrderError as error:
        said = str(error)
    assert not found, "it received"
    _check_forbidden(scene, said)


def _check_forbidden(scene: Scene, said: str) -> None:
    assert said, "it is taken"
    # A proxy says UNAUTHORIZED, or ends the client's stream.
    if scene.place.name != "real":
        assert "403" in said or "FORBIDDEN" in said.upper(), f"it said {said!r}"


USERS_SCENARIOS: Final[Mapping[str, Callable[[Scene], None]]] = {
    "users: who signs and may sends and receives": a_user_may,
    "users: and is pushed to": a_user_is_pushed_to,
    "users: a wrong secret is refused": wrong_secret,
    "users: somebody unknown is refused": unknown_user,
    "users: who may not send is refused": may_not_send,
    "users: who may not consume is refused": may_not_receive,
}
