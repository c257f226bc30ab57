from pathlib import Path

import pytest

from tests.tandem.cluster_file.files import FENCED, load, problems


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "coordinator: {endpoints: ['http://a:2379']}\n" + FENCED,
            ":1: coordinator.endpoints: are of etcd; give kind: etcd, or take them out",
        ),
        (
            "coordinator: {kind: etcd}\n" + FENCED,
            ":1: coordinator.kind: etcd needs its addresses",
        ),
        (
            "coordinator: {kind: etcd, endpoints: ['a:2379']}\n" + FENCED,
            ":1: coordinator.endpoints: 'a:2379' is not an address of etcd; give http://HOST:PORT",
        ),
        (
            "coordinator: {kind: etcd, endpoints: ['http://a']}\n" + FENCED,
            ":1: coordinator.endpoints: 'http://a' has no port (etcd's own is 2379); give http://",
        ),
        (
            "coordinator: {kind: etcd, endpoints: ['http://a:x']}\n" + FENCED,
            ":1: coordinator.endpoints: 'http://a:x' is not an address of etcd",
        ),
        (
            "coordinator: {kind: etcd, endpoints: ['http://u@a:1']}\n" + FENCED,
            ":1: coordinator.endpoints: 'http://u@a:1' has more than a host and a port",
        ),
        (
            "coordinator: {kind: etcd, endpoints: ['http://a:1/v3']}\n" + FENCED,
            ":1: coordinator.endpoints: 'http://a:1/v3' has more than a host and a port",
        ),
        (
            "coordinator: {kind: etcd, endpoints: ['http://a:1', 'https://b:1']}\n" + FENCED,
            ":1: coordinator.endpoints: some are http:// and some https://",
        ),
        (
            "coordinator: {kind: etcd, endpoints: ['http://a:1'], ca_file: c}\n" + FENCED,
            ":1: coordinator.ca_file: is for https://, and an endpoint is http://",
        ),
        (
            "coordinator: {kind: etcd, endpoints: ['http://a:1'], user: root}\n" + FENCED,
            ":1: coordinator.user: needs a password_file, and that one a user",
        ),
        (
            "coordinator: {kind: etcd, endpoints: ['http://a:1'], cert_file: c}\n" + FENCED,
            ":1: coordinator.cert_file: needs a key_file, and that one a cert_file",
        ),
    ],
)
def test_settings_that_do_not_go_together_are_named_with_a_remedy(
    tmp_path: Path, text: str, expected: str
) -> None:
    found = problems(tmp_path, text)
    assert found[0].startswith("cluster.yaml" + expected), found


def test_files_of_the_coordinator_have_absolute_paths(tmp_path: Path) -> None:
    etcd = (
        "coordinator: {kind: etcd, endpoints: ['https://a:2379'], ca_file: ca.pem,"
        " user: root, password_file: /etc/password}\n"
    )
    coordinator = load(tmp_path, etcd + FENCED).coordinator
    assert coordinator.ca_file == str(tmp_path / "ca.pem")
    assert coordinator.password_file == "/etc/password"
    assert not coordinator.key_file
