"""A CA of a cluster, what it signs, and what happens the second time."""

import datetime as dt
import ssl
import stat
from pathlib import Path

import pytest
from cryptography import x509

from tandem.cluster.certificates import (
    RENEW_DAYS,
    CertificateError,
    addresses_of,
    make_certificates,
)
from tandem.cluster_file.cluster_config import ClusterConfig
from tandem.cluster_file.coordinator_settings import COORDINATOR
from tandem.cluster_file.load import load_config
from tandem.tls_files import TLSFiles

NOW = dt.datetime.now(dt.UTC)

FILE = """
cluster: {name: Shop}
groups: {broker-a: {kind: fenced, min_isr: 1, master_address: "10.0.0.9:10911"}}
nodes:
  - {name: a, group: broker-a, broker_id: 1, address: 10.0.0.1, reach: {b: 10.0.1.2}}
  - {name: b, group: broker-a, broker_id: 2, address: 10.0.0.2}
"""


@pytest.fixture
def config(tmp_path: Path) -> ClusterConfig:
    (tmp_path / "cluster.yaml").write_text(FILE)
    return load_config(tmp_path / "cluster.yaml")


def read(file: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(file.read_bytes())


def test_nodes_are_believed_wherever_they_are_dialled(
    config: ClusterConfig, tmp_path: Path
) -> None:
    assert addresses_of(config) == {
        "a": {"10.0.0.1", "10.0.0.9"},
        "b": {"10.0.0.2", "10.0.0.9", "10.0.1.2"},
        "coordinator": {"127.0.0.1"},
    }
    made = make_certificates(config, tmp_path / "tls", now=NOW)
    assert [each.name for each in made] == ["ca", "a", "b", "coordinator", "client"]
    assert all(each.is_new for each in made)
    for name, addresses in addresses_of(config).items():
        files = config.coordinator_tls if name == COORDINATOR else config.node(name).tls_files
        assert Path(files.certificate_file) == tmp_path / f"tls/{name}.pem"
        for address in addresses:
            assert files.end_of_certificate(address) > NOW.timestamp() + 364 * 86_400
    names = {file.name: stat.S_IMODE(file.stat().st_mode) for file in (tmp_path / "tls").iterdir()}
    assert {name: mode for name, mode in names.items() if name.endswith(".key")} == {
        "ca.key": 0o600,
        "a.key": 0o600,
        "b.key": 0o600,
        "coordinator.key": 0o600,
        "client.key": 0o600,
    }
    assert len(names) == 10


def test_a_client_cannot_be_a_node(config: ClusterConfig, tmp_path: Path) -> None:
    make_certificates(config, tmp_path / "tls", now=NOW, clients=["shop"])
    usage = read(tmp_path / "tls/shop.pem").extensions.get_extension_for_class(
        x509.ExtendedKeyUsage
    )
    assert [each._name for each in usage.value] == ["clientAuth"]


def test_the_second_time_nothing_is_made_but_what_is_missing(
    config: ClusterConfig, tmp_path: Path
) -> None:
    directory = tmp_path / "tls"
    make_certificates(config, directory, now=NOW)
    before = {file.name: file.read_bytes() for file in directory.iterdir()}
    assert not any(each.is_new for each in make_certificates(config, directory, now=NOW))
    assert {file.name: file.read_bytes() for file in directory.iterdir()} == before
    (directory / "b.key").unlink()
    made = make_certificates(config, directory, now=NOW)
    assert [each.name for each in made if each.is_new] == ["b"]
    made = make_certificates(config, directory, now=NOW, renew=True)
    assert [each.name for each in made if each.is_new] == ["a", "b", "coordinator", "client"]


def test_what_ends_soon_or_lacks_an_address_is_made_anew(
    config: ClusterConfig, tmp_path: Path
) -> None:
    directory = tmp_path / "tls"
    make_certificates(config, directory, now=NOW, days=40)
    later = NOW + dt.timedelta(days=40 - RENEW_DAYS + 1)
    made = make_certificates(config, directory, now=later, days=40)
    assert [each.name for each in made if each.is_new] == ["a", "b", "coordinator", "client"]
    moved = tmp_path / "moved.yaml"
    moved.write_text(FILE.replace("10.0.0.2", "10.0.0.3"))
    made = make_certificates(load_config(moved), directory, now=later, days=40)
    assert [each.name for each in made if each.is_new] == ["b"]


def test_nothing_is_good_for_longer_than_its_ca(config: ClusterConfig, tmp_path: Path) -> None:
    ca, *others = make_certificates(config, tmp_path, now=NOW, days=9999)
    assert {each.ends for each in others} == {ca.ends}


def test_a_ca_without_its_key_signs_nothing(config: ClusterConfig, tmp_path: Path) -> None:
    """As on the machines that the certificates were copied to."""
    make_certificates(config, tmp_path, now=NOW)
    key = (tmp_path / "ca.key").read_bytes()
    (tmp_path / "ca.key").unlink()
    with pytest.raises(CertificateError) as caught:
        make_certificates(config, tmp_path, now=NOW)
    assert "where the key is" in str(caught.value)
    for wrong in ((tmp_path / "a.key").read_bytes(), b"", key[:40]):
        (tmp_path / "ca.key").write_bytes(wrong)
        with pytest.raises(CertificateError):
            make_certificates(config, tmp_path, now=NOW)


def test_a_certificate_that_is_none_is_named(config: ClusterConfig, tmp_path: Path) -> None:
    make_certificates(config, tmp_path, now=NOW)
    (tmp_path / "a.pem").write_bytes(b"nonsense")
    with pytest.raises(CertificateError) as caught:
        make_certificates(config, tmp_path, now=NOW)
    assert "a.pem" in str(caught.value)


@pytest.mark.parametrize(
    "name", ["", "ca", "a", "coordinator", "../x", "a b", "x" * 65, "ü", ".", "-x"]
)
def test_a_client_has_a_name_that_is_a_file_and_nobody_elses(
    config: ClusterConfig, tmp_path: Path, name: str
) -> None:
    with pytest.raises(CertificateError) as caught:
        make_certificates(config, tmp_path / "tls", now=NOW, clients=[name])
    assert repr(name) in str(caught.value)
    assert not (tmp_path / "tls").exists()


def test_a_directory_that_cannot_be_made_is_named(config: ClusterConfig, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CertificateError) as caught:
        make_certificates(config, tmp_path / "file/tls", now=NOW)
    assert "file" in str(caught.value)


def test_a_client_has_a_certificate_where_one_was_made(
    config: ClusterConfig, tmp_path: Path
) -> None:
    assert config.client_tls is None
    (tmp_path / "cluster.yaml").write_text(FILE + "tls: {mode: permissive}\n")
    on = load_config(tmp_path / "cluster.yaml")
    ca_file = str(tmp_path / "tls/ca.pem")
    assert on.client_tls == TLSFiles(ca_file)
    make_certificates(on, tmp_path / "tls", now=NOW)
    assert on.client_tls is not None
    assert on.client_tls.certificate_file == str(tmp_path / "tls/client.pem")
    assert on.client_tls.client_context().verify_mode is ssl.CERT_REQUIRED


def test_a_ca_is_replaced_step_by_step(config: ClusterConfig, tmp_path: Path) -> None:
    """As docs/security.md says: the new one beside, both believed, all renewed, the old one out."""
    directory = tmp_path / "tls"
    make_certificates(config, directory, now=NOW)
    make_certificates(config, tmp_path / "new", now=NOW)
    old = (directory / "ca.pem").read_bytes()
    (directory / "ca.pem").write_bytes((tmp_path / "new/ca.pem").read_bytes() + old)
    files = config.node("a").tls_files
    assert files.end_of_certificate("10.0.0.1")  # still of the old one
    (directory / "ca.key").write_bytes((tmp_path / "new/ca.key").read_bytes())
    made = make_certificates(config, directory, now=NOW, renew=True)
    assert [each.name for each in made if each.is_new] == ["a", "b", "coordinator", "client"]
    (directory / "ca.pem").write_bytes((tmp_path / "new/ca.pem").read_bytes())
    assert files.end_of_certificate("10.0.0.1")
