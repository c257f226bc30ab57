import pytest

from tandem.client.cluster_access import ClusterAccess
from tandem.spark.cluster_options import CLUSTER_OPTIONS, read_access
from tandem.spark.errors import OptionError
from tandem.spark.live.options import OPTIONS as OF_SOURCE
from tandem.spark.option_reader import OptionReader
from tandem.spark.sink.options import OPTIONS as OF_SINK
from tandem.tls_files import TLSFiles


def read(**raw: str) -> ClusterAccess:
    given = OptionReader("this", CLUSTER_OPTIONS, raw)
    access = read_access(given)
    given.finish()
    return access


def test_they_make_what_a_client_takes() -> None:
    assert read(nameServers="h:1, i:2") == ClusterAccess("h:1;i:2")
    assert read(nameServer="h:1", tlsCaFile="ca") == ClusterAccess("h:1", tls=TLSFiles("ca"))
    signed = read(nameServers="h:1", accessKey="me", secretKey="secret", signatures="any")
    assert signed == ClusterAccess("h:1", "me", "secret", signatures="any")
    assert "secret'" not in repr(signed)


@pytest.mark.parametrize(
    ("raw", "names"),
    [
        ({}, ["nameServers"]),
        ({"nameServers": "h"}, ["nameServers"]),
        ({"nameServers": ";"}, ["nameServers"]),
        ({"nameServers": "h:1", "nameServer": "h:1"}, ["nameServers", "nameServer"]),
        ({"nameServers": "h:1", "accessKey": "me"}, ["accessKey", "secretKey"]),
        ({"nameServers": "h:1", "accessKey": ""}, ["accessKey", "secretKey"]),
        ({"nameServers": "h:1", "secretKey": "x"}, ["accessKey", "secretKey"]),
        ({"nameServers": "h:1", "signatures": "none"}, ["signatures"]),
        ({"accessKey": "me"}, ["accessKey", "secretKey", "nameServers"]),
    ],
)
def test_what_no_client_can_use_is_refused(raw: dict[str, str], names: list[str]) -> None:
    with pytest.raises(OptionError) as caught:
        read(**raw)
    assert caught.value.names == tuple(names)


def test_source_and_sink_have_all_of_them() -> None:
    assert set(CLUSTER_OPTIONS) <= set(OF_SOURCE)
    assert set(CLUSTER_OPTIONS) <= set(OF_SINK)
