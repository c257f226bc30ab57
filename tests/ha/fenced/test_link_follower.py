import msgspec
import pytest

from ha.errors import HandshakeError, LinkFault, MasterDeposedError, RemoteHAError
from ha.fenced.epochs import EpochEntry
from ha.fenced.link_follower import LinkFollower, expect_master
from ha.fenced.protocol import Welcome, proven

FOLLOWER = LinkFollower(
    cluster="C",
    group="g",
    name="b",
    incarnation="i-b",
    secret="secret",
    master="a",
    epoch=7,
    epoch_id="drawn",
    file_size_bytes=4096,
    record_bytes_max=1000,
    check_crc=True,
)
WELCOME = Welcome(
    epoch=7,
    node="a",
    incarnation="i-a",
    epochs=(EpochEntry(2, 0), EpochEntry(7, 300, "drawn")),
    log_start=0,
    log_end=900,
    confirm=300,
)


def expect(welcome: Welcome, secret: str = "secret", *, promised: int = 7) -> None:
    expect_master(proven(welcome, secret, "n-a", "n-b"), FOLLOWER, promised, ("n-a", "n-b"))


def test_the_master_to_follow_is_believed() -> None:
    expect(WELCOME)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"node": "c"}, HandshakeError),
        ({"epoch": 6}, MasterDeposedError),
        ({"epoch": 8}, HandshakeError),
        ({"epochs": WELCOME.epochs[:1]}, HandshakeError),
        ({"epochs": WELCOME.epochs[::-1]}, HandshakeError),
        ({"epochs": (EpochEntry(7, 300, "another"),)}, HandshakeError),
        ({"log_end": 299}, HandshakeError),
    ],
)
def test_any_other_is_not(changes: dict[str, object], error: type[RemoteHAError]) -> None:
    with pytest.raises(error):
        expect(msgspec.structs.replace(WELCOME, **changes))


def test_nor_one_below_the_promise_or_without_the_secret() -> None:
    with pytest.raises(MasterDeposedError):
        expect(WELCOME, promised=9)
    with pytest.raises(HandshakeError) as caught:
        expect(WELCOME, "guess")
    assert caught.value.fault is LinkFault.PROOF
