from pathlib import Path

import msgspec
import pytest

from node.errors import ConfigError
from node.security.exposure import check_exposure
from tandem.cluster_file.choices import ClientAccess, ClientAuth, GroupKind, TLSMode
from tandem.cluster_file.settings import MetricsSettings, SecuritySettings, TLSSettings
from tests.node.world import fenced_cluster


def test_a_node_beyond_this_machine_has_to_be_allowed(tmp_path: Path) -> None:
    open_to_all = fenced_cluster(tmp_path)
    check_exposure(open_to_all.node("a1"))
    closed = msgspec.structs.replace(open_to_all, security=SecuritySettings())
    with pytest.raises(ConfigError) as caught:
        check_exposure(closed.node("a1"))
    assert caught.value.setting == "security.allow_unauthenticated"
    here = msgspec.structs.replace(closed.nodes[0], address="127.9.9.9")
    local = msgspec.structs.replace(closed, nodes=(here,))
    check_exposure(local.node("a1"))
    group = msgspec.structs.replace(local.groups["broker-a"], master_address="10.0.0.100:10911")
    shared = msgspec.structs.replace(local, groups={"broker-a": group})
    with pytest.raises(ConfigError) as caught:
        check_exposure(shared.node("a1"))
    assert caught.value.setting == "security.allow_unauthenticated"


def test_who_asks_for_certificates_knows_its_clients(tmp_path: Path) -> None:
    closed = msgspec.structs.replace(fenced_cluster(tmp_path), security=SecuritySettings())
    asks = TLSSettings(mode=TLSMode.ENFORCING, client_auth=ClientAuth.REQUIRE)
    check_exposure(msgspec.structs.replace(closed, tls=asks).node("a1"))
    for less in (
        TLSSettings(mode=TLSMode.ENFORCING, client_auth=ClientAuth.OPTIONAL),
        TLSSettings(mode=TLSMode.PERMISSIVE, client_auth=ClientAuth.REQUIRE),
        TLSSettings(mode=TLSMode.ENFORCING),
    ):
        with pytest.raises(ConfigError):
            check_exposure(msgspec.structs.replace(closed, tls=less).node("a1"))


def test_a_node_without_a_secret_does_not_start(tmp_path: Path) -> None:
    config = msgspec.structs.replace(fenced_cluster(tmp_path), secret="")
    with pytest.raises(ConfigError) as caught:
        check_exposure(config.node("a1"))
    assert caught.value.setting == "cluster.secret_file"


def test_a_log_leaves_this_machine_in_clear_only_if_that_is_said(tmp_path: Path) -> None:
    fenced = fenced_cluster(tmp_path)
    on = msgspec.structs.replace(fenced, tls=TLSSettings(mode=TLSMode.ENFORCING))
    check_exposure(on.node("a1"))
    group = msgspec.structs.replace(on.groups["broker-a"], kind=GroupKind.CLASSIC)
    classic = msgspec.structs.replace(on, groups={"broker-a": group})
    with pytest.raises(ConfigError) as caught:
        check_exposure(classic.node("a1"))
    assert caught.value.setting == "security.classic_ha_in_clear"
    said = msgspec.structs.replace(classic.security, classic_ha_in_clear=True)
    check_exposure(msgspec.structs.replace(classic, security=said).node("a1"))
    # Without TLS nobody expects anything else, and a lone node has nobody to copy to.
    clear = msgspec.structs.replace(classic, tls=TLSSettings(mode=TLSMode.PERMISSIVE))
    check_exposure(clear.node("a1"))
    lone = msgspec.structs.replace(classic, nodes=classic.nodes[:1])
    check_exposure(lone.node(lone.nodes[0].name))
    # A learner of a fenced group copies as a classic slave does.
    learned = msgspec.structs.replace(on.groups["broker-a"], learners=["10.0.0.77"])
    with pytest.raises(ConfigError):
        check_exposure(msgspec.structs.replace(on, groups={"broker-a": learned}).node("a1"))


def test_who_asks_for_users_knows_its_clients_and_does_so_over_tls(tmp_path: Path) -> None:
    closed = msgspec.structs.replace(fenced_cluster(tmp_path), security=SecuritySettings())
    for clients in (ClientAccess.AUTHENTICATED, ClientAccess.AUTHORIZED):
        asks = msgspec.structs.replace(closed, security=SecuritySettings(clients=clients))
        for mode in (TLSMode.DISABLED, TLSMode.PERMISSIVE):
            in_clear = msgspec.structs.replace(asks, tls=TLSSettings(mode=mode))
            with pytest.raises(ConfigError) as caught:
                check_exposure(in_clear.node("a1"))
            assert caught.value.setting == "security.allow_in_clear"
            allowed = SecuritySettings(clients=clients, allow_in_clear=True)
            check_exposure(msgspec.structs.replace(in_clear, security=allowed).node("a1"))
        enforcing = TLSSettings(mode=TLSMode.ENFORCING)
        check_exposure(msgspec.structs.replace(asks, tls=enforcing).node("a1"))
        here = tuple(msgspec.structs.replace(node, address="127.0.0.9") for node in asks.nodes)
        check_exposure(msgspec.structs.replace(asks, nodes=here).node("a1"))


@pytest.mark.parametrize(
    ("metrics", "tls", "remedy"),
    [
        (MetricsSettings(), TLSSettings(), None),
        (MetricsSettings(port=1), TLSSettings(), None),
        (MetricsSettings(port=1, address="10.0.0.1"), TLSSettings(), "allow_unauthenticated"),
        (
            MetricsSettings(port=1, address="0.0.0.0", allow_unauthenticated=True),
            TLSSettings(mode=TLSMode.PERMISSIVE),
            "allow_in_clear",
        ),
        (
            MetricsSettings(
                port=1, address="10.0.0.1", allow_unauthenticated=True, allow_in_clear=True
            ),
            TLSSettings(),
            None,
        ),
        (
            MetricsSettings(port=1, address="10.0.0.1"),
            TLSSettings(mode=TLSMode.ENFORCING),
            "allow_unauthenticated",
        ),
        (
            MetricsSettings(port=1, address="10.0.0.1"),
            TLSSettings(mode=TLSMode.ENFORCING, client_auth=ClientAuth.REQUIRE),
            None,
        ),
    ],
)
def test_metrics_leave_this_machine_if_that_is_said(
    metrics: MetricsSettings, tls: TLSSettings, remedy: str | None, tmp_path: Path
) -> None:
    config = msgspec.structs.replace(fenced_cluster(tmp_path), metrics=metrics, tls=tls)
    if remedy is None:
        check_exposure(config.node("a1"))
        return
    with pytest.raises(ConfigError) as caught:
        check_exposure(config.node("a1"))
    assert f"metrics.{remedy}: true" in str(caught.value)


@pytest.mark.parametrize(
    "endpoint",
    [
        None,
        "http://127.0.0.9:4318",
        "http://localhost:4318/v1/metrics",
        "http://[::1]:4318",
        "https://collector.example",
    ],
)
def test_exports_stay_here_or_are_not_in_clear(endpoint: str | None, tmp_path: Path) -> None:
    metrics = MetricsSettings(otlp_endpoint=endpoint)
    config = msgspec.structs.replace(fenced_cluster(tmp_path), metrics=metrics)
    check_exposure(config.node("a1"))


@pytest.mark.parametrize(
    "endpoint",
    ["http://10.0.0.1:4318", "http://collector.example:4318", "HTTP://collector.example:4318"],
)
def test_exports_leave_this_machine_in_clear_if_that_is_said(endpoint: str, tmp_path: Path) -> None:
    metrics = MetricsSettings(otlp_endpoint=endpoint)
    config = msgspec.structs.replace(fenced_cluster(tmp_path), metrics=metrics)
    with pytest.raises(ConfigError) as caught:
        check_exposure(config.node("a1"))
    assert caught.value.setting == "metrics.otlp_endpoint"
    said = msgspec.structs.replace(metrics, allow_in_clear=True)
    check_exposure(msgspec.structs.replace(config, metrics=said).node("a1"))
