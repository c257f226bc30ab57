"""Where a cluster is and who asks, said once."""

import pickle
import time
from typing import Any

import pytest

from tandem.client.cluster_access import ClusterAccess
from tandem.wire.errors import ArgumentError
from tandem.wire.remoting_command import RemotingCommand
from tests.tandem.client.fake_broker import IDENTITY

ADDRESSES = ["10.0.0.1:9876", "10.0.0.2:9876"]


@pytest.mark.parametrize(
    "given", [ADDRESSES, tuple(ADDRESSES), ";".join(ADDRESSES), " 10.0.0.1:9876 ; 10.0.0.2:9876;"]
)
def test_addresses_alone_are_enough(given: str | list[str]) -> None:
    access = ClusterAccess.of(given)
    assert access.addresses == tuple(ADDRESSES)
    assert {access} == {ClusterAccess(ADDRESSES)}
    assert ClusterAccess.of(access) is access
    core = access.core(time.monotonic, consumer_group="CG")
    assert core.credentials is None
    assert core.signer("10.0.0.1:10911") is None
    assert core.clock is time.monotonic
    assert core.identity.salt != access.core(time.monotonic).identity.salt


def test_who_asks_goes_into_every_core() -> None:
    access = ClusterAccess(ADDRESSES, access_key="me", secret_key="mine", identity=IDENTITY)
    for _ in range(2):
        core = access.core(time.monotonic)
        assert core.identity == IDENTITY
        assert core.credentials is not None
        assert core.credentials.access_key == "me"


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"name_servers": ""}, "name_servers"),
        ({"name_servers": []}, "name_servers"),
        ({"name_servers": "10.0.0.1"}, "name_servers"),
        ({"name_servers": ["10.0.0.1:0"]}, "name_servers"),
        ({"name_servers": ADDRESSES, "access_key": "me"}, "secret_key"),
        ({"name_servers": ADDRESSES, "secret_key": "mine"}, "access_key"),
    ],
)
def test_what_no_client_can_use_is_refused_at_once(given: dict[str, Any], name: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        ClusterAccess(**given)
    assert caught.value.names == (name,)


def test_secrets_are_not_shown() -> None:
    access = ClusterAccess(ADDRESSES, access_key="me", secret_key="k-mine", secret="s-ours")
    for text in (repr(access), str(access), f"{access}"):
        assert "me" in text
        assert "10.0.0.2:9876" in text
        assert "k-mine" not in text
        assert "s-ours" not in text
    assert repr(ClusterAccess(ADDRESSES)) == "ClusterAccess('10.0.0.1:9876;10.0.0.2:9876')"


def test_it_travels_to_other_processes() -> None:
    access = ClusterAccess(ADDRESSES, access_key="me", secret_key="mine", secret="ours")
    assert pickle.loads(pickle.dumps(access)) == access


def test_signatures_that_can_be_sent_again_have_to_be_asked_for() -> None:
    access = ClusterAccess("10.0.0.1:9876", "me", "mine")
    assert access.signatures == "replay_proof"
    assert "signatures" not in repr(access)
    other = ClusterAccess("10.0.0.1:9876", "me", "mine", signatures="any")
    assert "signatures='any'" in repr(other)
    for each, is_taken in ((access, False), (other, True)):
        signer = each.core(lambda: 0.0).signer("10.0.0.1:10911")
        assert signer is not None
        assert (signer.answered(RemotingCommand(3)) is None) is is_taken
    with pytest.raises(ArgumentError) as caught:
        ClusterAccess("10.0.0.1:9876", signatures="none")
    assert caught.value.names == ("signatures",)
