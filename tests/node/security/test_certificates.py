"""A node starts with certificates that are believed, and takes new ones while it runs."""

import datetime as dt
import logging
import shutil
import ssl
from pathlib import Path

import msgspec
import pytest
import trio
from trio.testing import MockClock

from node.errors import ConfigError
from node.security.certificates import LOOK_SECONDS, Certificates
from store.machine.tcp_network import TCPNetwork
from tandem.cluster.certificates import make_certificates
from tandem.cluster_file.choices import ClientAuth, TLSMode
from tandem.cluster_file.cluster_config import ClusterConfig, NodeConfig
from tandem.cluster_file.settings import TLSSettings
from tests.node.world import fenced_cluster

NOW = dt.datetime.now(dt.UTC)


class Wall:
    """A wall clock that is set by hand."""

    def __init__(self) -> None:
        self.days = 0.0

    def now_ms(self) -> int:
        return int((NOW.timestamp() + self.days * 86_400) * 1000)


@pytest.fixture
def config(tmp_path: Path) -> ClusterConfig:
    cluster = fenced_cluster(tmp_path)
    on = TLSSettings(mode=TLSMode.ENFORCING)
    cluster = msgspec.structs.replace(cluster, file=tmp_path / "cluster.yaml", tls=on)
    make_certificates(cluster, tmp_path / "tls", now=NOW, days=100)
    return cluster


def of(config: ClusterConfig) -> NodeConfig:
    return config.node(config.nodes[0].name)


@pytest.fixture
def wall() -> Wall:
    return Wall()


@pytest.mark.parametrize(
    ("mode", "takes_clear"), [(TLSMode.ENFORCING, False), (TLSMode.PERMISSIVE, True)]
)
@pytest.mark.parametrize("asks", ClientAuth)
def test_the_cluster_file_says_who_is_served(
    config: ClusterConfig, wall: Wall, mode: TLSMode, *, takes_clear: bool, asks: ClientAuth
) -> None:
    changed = msgspec.structs.replace(config, tls=TLSSettings(mode=mode, client_auth=asks))
    terms = Certificates(of(changed), TCPNetwork(), wall.now_ms).network.terms
    assert (terms.takes_clear, terms.dials_clear) == (takes_clear, takes_clear)
    assert terms.accepting is not None
    assert (
        terms.accepting.verify_mode
        is {
            ClientAuth.NONE: ssl.CERT_NONE,
            ClientAuth.OPTIONAL: ssl.CERT_OPTIONAL,
            ClientAuth.REQUIRE: ssl.CERT_REQUIRED,
        }[asks]
    )
    assert terms.dialling.verify_mode is ssl.CERT_REQUIRED


def test_a_node_does_not_start_with_a_certificate_that_is_believed_by_nobody(
    config: ClusterConfig, wall: Wall, tmp_path: Path
) -> None:
    node = config.nodes[0].name
    other = config.nodes[1].name
    for kind in ("pem", "key"):
        shutil.copy(tmp_path / f"tls/{other}.{kind}", tmp_path / f"tls/{node}.{kind}")
    with pytest.raises(ConfigError) as caught:
        Certificates(of(config), TCPNetwork(), wall.now_ms)
    assert config.nodes[0].address in str(caught.value)
    (tmp_path / f"tls/{node}.key").unlink()
    with pytest.raises(ConfigError) as caught:
        Certificates(of(config), TCPNetwork(), wall.now_ms)
    assert f"{node}.key" in str(caught.value)


async def test_new_files_are_taken_when_they_fit(
    config: ClusterConfig,
    wall: Wall,
    tmp_path: Path,
    nursery: trio.Nursery,
    autojump_clock: MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    certificates = Certificates(of(config), TCPNetwork(), wall.now_ms)
    nursery.start_soon(certificates.watch)
    first = certificates.network.terms
    await trio.sleep(3 * LOOK_SECONDS)
    assert certificates.network.terms is first
    key = Path(of(config).tls_files.key_file)
    shutil.copy(tmp_path / "tls/ca.key", key)
    await trio.sleep(3 * LOOK_SECONDS)
    assert certificates.network.terms is first
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "is not the key of" in caplog.text
    make_certificates(config, tmp_path / "tls", now=NOW, renew=True)
    await trio.sleep(1.5 * LOOK_SECONDS)
    assert certificates.network.terms is not first
    assert "certificates were read again" in caplog.records[-1].message
    # Gone is not another: those in memory are kept.
    second = certificates.network.terms
    key.unlink()
    await trio.sleep(3 * LOOK_SECONDS)
    assert certificates.network.terms is second


async def test_the_end_of_a_certificate_is_told_beforehand_once_a_day(
    config: ClusterConfig,
    wall: Wall,
    nursery: trio.Nursery,
    autojump_clock: MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    certificates = Certificates(of(config), TCPNetwork(), wall.now_ms)
    nursery.start_soon(certificates.watch)
    for days, told in ((85.5, 0), (87.5, 1), (87.6, 1), (88.5, 2)):
        wall.days = days
        await trio.sleep(2 * LOOK_SECONDS)
        assert caplog.text.count("ends in") == told
    assert "ends in 11 days" in caplog.text
    wall.days = 101
    await trio.sleep(2 * LOOK_SECONDS)
    assert "has ended" in caplog.records[-1].message


def test_a_certificate_has_to_be_good_at_the_masters_address_too(
    config: ClusterConfig, wall: Wall
) -> None:
    name = config.nodes[0].group
    group = msgspec.structs.replace(config.groups[name], master_address="10.0.0.99:10911")
    moved = msgspec.structs.replace(config, groups={**config.groups, name: group})
    with pytest.raises(ConfigError) as caught:
        Certificates(of(moved), TCPNetwork(), wall.now_ms)
    assert "10.0.0.99" in str(caught.value)
