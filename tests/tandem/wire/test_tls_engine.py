"""TLS between two functions of a test: no socket, no event loop."""

import ssl

import pytest

from tandem.tls_files import TLSFiles
from tandem.wire.tls_engine import TLSEngine, speaks_tls, why
from tests.support import certificates

HERE = "127.0.0.1"


def agree(client: TLSEngine, server: TLSEngine) -> None:
    """Do the whole handshake."""
    said = b""
    for _ in range(5):
        done = client.handshake(said)
        is_through = server.handshake(client.to_send())
        said = server.to_send()
        if done and is_through:
            return
    raise AssertionError("no end of the handshake")


def pair() -> tuple[TLSEngine, TLSEngine]:
    """A client and a server that have agreed."""
    accepting, dialling = certificates.contexts()
    client, server = TLSEngine(dialling, server_name=HERE), TLSEngine(accepting)
    agree(client, server)
    return client, server


@pytest.mark.parametrize("size", [0, 1, 16_383, 16_384, 16_385, 200_000])
def test_bytes_of_any_number_of_records_are_the_same_again(size: int) -> None:
    client, server = pair()
    data = bytes(range(256)) * (size // 256 + 1)
    encrypted = client.encrypt(data[:size])
    assert server.decrypt(encrypted) == data[:size]
    assert (
        b"".join(server.decrypt(bytes([byte])) for byte in client.encrypt(data[:300]))
        == (data[:300])
    )


def test_the_end_comes_after_the_bytes() -> None:
    client, server = pair()
    assert server.decrypt(client.encrypt(b"last words") + client.close()) == b"last words"
    assert server.is_over
    assert server.decrypt(b"") == b""


@pytest.mark.parametrize("at", [0, 1, 3, 5, 20, -1])
def test_bytes_that_change_on_their_way_are_noticed(at: int) -> None:
    client, server = pair()
    data = bytearray(client.encrypt(b"transfer 100 to alice"))
    data[at] ^= 1
    with pytest.raises(ssl.SSLError):
        assert server.decrypt(bytes(data)) == b""
        server.decrypt(bytes(20_000))


def test_bytes_that_come_twice_are_noticed() -> None:
    client, server = pair()
    data = client.encrypt(b"transfer 100 to alice")
    assert server.decrypt(data) == b"transfer 100 to alice"
    with pytest.raises(ssl.SSLError):
        server.decrypt(data)


def test_a_peer_is_known_by_its_certificate_if_it_shows_one() -> None:
    client, server = pair()
    assert client.peer_name == "node"
    assert server.peer_name is None
    accepting, dialling = certificates.contexts(asks=True)
    client, server = TLSEngine(dialling, server_name=HERE), TLSEngine(accepting)
    agree(client, server)
    assert server.peer_name == "node"
    assert ssl.cert_time_to_seconds(client.peer_end) > certificates.NOW.timestamp()


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_nothing_older_than_tls_1_2_is_spoken() -> None:
    accepting, _ = certificates.contexts()
    old = TLSFiles(certificates.files().ca_file).client_context()
    old.set_ciphers("ALL:@SECLEVEL=0")
    old.minimum_version = ssl.TLSVersion.TLSv1
    old.maximum_version = ssl.TLSVersion.TLSv1_1
    client, server = TLSEngine(old, server_name=HERE), TLSEngine(accepting)
    client.handshake(b"")
    with pytest.raises(ssl.SSLError) as caught:
        server.handshake(client.to_send())
    assert why(caught.value) == "it offers only TLS 1.1 or older"


def test_frames_and_tls_are_told_apart_by_their_first_byte() -> None:
    accepting, dialling = certificates.contexts()
    client = TLSEngine(dialling, server_name=HERE)
    client.handshake(b"")
    assert speaks_tls(client.to_send())
    assert not speaks_tls(b"")
    # The greatest frame that is taken is smaller than 2 to the 24th.
    assert not any(speaks_tls(bytes([first])) for first in (0, 1))
    assert TLSEngine(accepting).has_to_send is False
