from tandem.wire.secret_keys import Purpose, key_of


def test_each_purpose_has_a_key_of_its_own_that_stays() -> None:
    keys = [key_of("0123456789abcdef", purpose) for purpose in Purpose]
    assert len(set(keys)) == len(keys)
    assert {len(key) for key in keys} == {32}
    # Of nodes that are started again with another version.
    assert keys[2].hex().startswith("fa2d2fccd3c64b8e")
    assert key_of("0123456789abcdeg", Purpose.REQUEST) != keys[2]
