import re

from tandem.client.identity import ClientIdentity, UniqueKeys, local_identity, wall_clock_ms

IDENTITY = ClientIdentity("127.0.0.1", 0x11234, 0xABCDEF01)
# 2023-11-14T22:13:20Z
NOW_MS = 1_700_000_000_000
SINCE_MONTH_START_MS = ((13 * 24 + 22) * 3600 + 13 * 60 + 20) * 1000


def test_a_key_is_address_process_salt_time_and_counter() -> None:
    keys = UniqueKeys(IDENTITY)
    assert keys.next_key(NOW_MS) == f"7F0000011234ABCDEF01{SINCE_MONTH_START_MS:08X}0000"
    assert keys.next_key(NOW_MS + 1) == f"7F0000011234ABCDEF01{SINCE_MONTH_START_MS + 1:08X}0001"


def test_keys_are_32_digits_or_56_for_ipv6() -> None:
    assert len(UniqueKeys(IDENTITY).next_key(NOW_MS)) == 32
    assert len(UniqueKeys(ClientIdentity("::1", 1, 2)).next_key(NOW_MS)) == 56


def test_the_counter_wraps_and_the_month_turns() -> None:
    keys = UniqueKeys(IDENTITY)
    seen = {keys.next_key(NOW_MS + index // 60_000) for index in range(70_000)}
    assert len(seen) == 70_000
    december_ms = 1_701_388_800_000
    assert keys.next_key(december_ms)[20:28] == "00000000"
    assert keys.next_key(december_ms - 1)[20:28] == f"{30 * 86_400_000 - 1:08X}"


def test_many_keys_at_once_are_those_that_are_made_one_by_one() -> None:
    at_once, one_by_one = (UniqueKeys(ClientIdentity("10.0.0.1", 7, 9)) for _ in range(2))
    for now_ms, count in ((0, 3), (5, 0), (5, 0xFFFF), (6, 10)):
        keys = at_once.next_keys(now_ms, count)
        assert keys == [one_by_one.next_key(now_ms) for _ in range(count)]
    assert at_once.next_key(6) == one_by_one.next_key(6)


def test_the_client_id_is_written_as_java_does() -> None:
    assert ClientIdentity("10.0.0.9", 4711, 83).client_id == "10.0.0.9@4711#83"


def test_this_process_has_an_identity_whatever_the_name_server() -> None:
    for name_server in ("127.0.0.1:9876", "no such host.invalid:1"):
        assert re.fullmatch(r"[0-9.]+@\d+#\d+", local_identity(name_server).client_id)


def test_the_wall_clock_counts_milliseconds_since_1970() -> None:
    assert 1_600_000_000_000 < wall_clock_ms() < 10_000_000_000_000
