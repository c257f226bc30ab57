from hypothesis import given
from hypothesis import strategies as st

from ha.fenced.seal import DIGEST_BYTES, FRAMES, REPORTS, SEAL_BYTES, BodyDigest, Seal, body_digest


def test_a_seal_is_of_one_secret_connection_direction_place_and_content() -> None:
    first = Seal("secret", FRAMES, "a", "b").next(b"data")
    second = Seal("secret", FRAMES, "a", "b")
    assert second.next(b"data") == first
    others = [
        second.next(b"data"),
        Seal("secret", FRAMES, "a", "b").next(b"date"),
        Seal("secret", REPORTS, "a", "b").next(b"data"),
        Seal("secret", FRAMES, "b", "a").next(b"data"),
        Seal("secret", FRAMES, "a", "c").next(b"data"),
        Seal("secret", FRAMES, "ab", "").next(b"data"),
        Seal("other", FRAMES, "a", "b").next(b"data"),
    ]
    assert len({first, *others}) == len(others) + 1
    assert {len(seal) for seal in others} == {SEAL_BYTES}


@given(st.lists(st.binary(max_size=20), max_size=5), st.integers(0, 4))
def test_what_was_said_fits_in_its_order(said: list[bytes], spoilt: int) -> None:
    speaker, listener = (Seal("secret", FRAMES, "a", "b") for _ in range(2))
    for number, data in enumerate(said):
        seal = speaker.next(data)
        if number == spoilt:
            assert not listener.fits(data, seal[:-1] + bytes([seal[-1] ^ 1]))
        else:
            assert listener.fits(data, seal)


def test_a_digest_has_its_size() -> None:
    assert len(body_digest(memoryview(b"body"))) == DIGEST_BYTES


def test_pieces_of_a_body_have_the_digest_of_the_whole_and_the_next_begins_anew() -> None:
    digest = BodyDigest(is_wanted=True)
    for body, said, fits in ((b"some body", b"some body", True), (b"other", b"another", False)):
        digest.expect(body_digest(said))
        for start in range(0, len(body), 2):
            digest.add(memoryview(body)[start : start + 2])
        assert digest.fits() is fits
    digest.expect(body_digest(b""))
    assert digest.fits()
    careless = BodyDigest(is_wanted=False)
    careless.expect(body_digest(b"that"))
    careless.add(memoryview(b"this"))
    assert careless.fits()
