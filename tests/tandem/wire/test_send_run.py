"""What a run is made of. That it ends as single requests do is in tests/node/handlers."""

from __future__ import annotations

from itertools import chain
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.handlers.stored_answer import answer_parts
from tandem.wire import native
from tandem.wire.frame_buffer import FrameBuffer
from tandem.wire.frame_seal import FrameSeal
from tandem.wire.message import Host, decode_messages
from tandem.wire.message_properties import java_string_hash
from tandem.wire.read_together import ReadTogether
from tandem.wire.remoting_command import (
    RESPONSE_FLAG,
    RemotingCommand,
    SerializeType,
    encode_frame,
)
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import SendMessageRequestHeaderV2, SendMessageResponseHeader
from tandem.wire.send_run import PLACES_MAX, SENDS_MAX, SendPlace, SendRuns

pytestmark = pytest.mark.skipif(native.loops is None, reason="no C compiler at installation")

HOST: Final = Host("127.0.0.1", 10911)
V6: Final = Host("2001:db8::7", 10911)
CLIENT: Final = Host("10.1.2.3", 99)
ENCODINGS: Final = [SerializeType.JSON, SerializeType.MSGPACK]


def finder(host: Host = HOST, body_bytes_max: int = 1000) -> SendRuns:
    assert native.loops is not None
    return SendRuns(
        native.loops,
        suffix=b"CLUSTER\x01C\x02",
        answers=answer_parts(host),
        store_host=host,
        body_bytes_max=body_bytes_max,
        text_bytes_max=511,
    )


def frame(
    number: int,
    topic: str = "T",
    queue_id: int = 0,
    body: bytes = b"body",
    encoding: SerializeType = SerializeType.JSON,
) -> bytes:
    header = SendMessageRequestHeaderV2(
        producer_group="g",
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=queue_id,
        sys_flag=0,
        born_timestamp=1_700_000_000_000 + number,
        flag=-number,
        properties=f"TAGS\x01t{number}\x02UNIQ_KEY\x01K{number}",
    )
    return encode_frame(
        RemotingCommand(
            RequestCode.SEND_MESSAGE_V2, number, ext=header, body=body, serialize_type=encoding
        )
    )


@pytest.mark.parametrize("host", [HOST, V6])
@pytest.mark.parametrize("born", [CLIENT, V6])
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_run_is_records_units_and_answers(
    encoding: SerializeType, born: Host, host: Host
) -> None:
    numbers = [0, 127, 128, 255, 65_535, 65_536, 2**31 - 1]
    data = b"head" + b"".join(
        frame(number, "TU"[place % 2], 300 * (place % 2), b"b" * place, encoding)
        for place, number in enumerate(numbers)
    )
    runs = finder(host)
    assert runs.find(data, 4)
    assert (runs.count, runs.end) == (7, len(data))
    assert runs.places() == [SendPlace("T", 0, 0, 4), SendPlace("U", 300, 1, 3)]
    start = 2**40 + 5
    written = runs.write(born.packed, [0xFF, 2**32], start, 1_700_000_009_999)
    messages = list(decode_messages(written.records))
    assert [(message.flag, message.body) for message in messages] == [
        (-number, b"b" * place) for place, number in enumerate(numbers)
    ]
    assert [message.queue_offset for message in messages] == [
        0xFF + place // 2 if place % 2 == 0 else 2**32 + place // 2 for place in range(7)
    ]
    assert {(message.born_host, message.store_host) for message in messages} == {(born, host)}
    assert [message.tags for message in messages] == [f"t{number}" for number in numbers]
    ends = written.record_ends.tolist()
    starts = [start, *ends[:-1]]
    assert [message.physical_offset for message in messages] == starts
    assert ends[-1] - start == len(written.records) == runs.record_bytes(born.packed)
    rows = [(starts[n], ends[n] - starts[n], java_string_hash(f"t{numbers[n]}")) for n in range(7)]
    assert written.units == [*chain(*rows[::2], *rows[1::2])]
    answers = FrameBuffer()
    answers.receive_data(written.answers)
    for place, number in enumerate(numbers):
        answer = answers.next_command()
        assert answer is not None
        header = answer.decode_header(SendMessageResponseHeader)
        assert (answer.opaque, header.queue_id) == (number, 300 * (place % 2))
        assert header.queue_offset == messages[place].queue_offset
        assert header.msg_id == f"{host.packed.hex().upper()}{starts[place]:016X}"
    assert written.answer_ends[-1] == len(written.answers)


NUMBERS: Final = [0, 127, 128, 255, 256, 65_535, 65_536, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**58]


@pytest.mark.parametrize("queue_offset", NUMBERS)
@pytest.mark.parametrize("number", [number for number in NUMBERS if number < 2**31])
def test_a_packed_answer_is_what_python_makes_of_it(number: int, queue_offset: int) -> None:
    runs = finder()
    assert runs.find(frame(number, queue_id=number, encoding=SerializeType.MSGPACK), 0)
    written = runs.write(CLIENT.packed, [queue_offset], 77, 1)
    header = SendMessageResponseHeader(
        f"{HOST.packed.hex().upper()}{77:016X}", number, queue_offset
    )
    assert written.answers == encode_frame(
        RemotingCommand(0, number, RESPONSE_FLAG, ext=header, serialize_type=SerializeType.MSGPACK)
    )


def test_nothing_of_the_run_before_is_left_in_records() -> None:
    runs = finder()
    assert runs.find(frame(1, body=b"\xff" * 900), 0)
    runs.write(CLIENT.packed, [0], 0, 1)
    assert runs.find(frame(1) * 4, 0)
    for message in decode_messages(runs.write(CLIENT.packed, [0], 0, 1).records):
        assert (message.reconsume_times, message.prepared_transaction_offset) == (0, 0)


def test_properties_have_their_bound() -> None:
    """511 bytes with the suffix and a separator."""
    runs = finder()
    usual = frame(1)
    for more in range(440, 500):
        long = usual.replace(b"\\u0002", b"L" * more + b"\\u0002")
        sizes = (len(long) - 4).to_bytes(4, "big") + (len(long) - 12).to_bytes(4, "big")
        size = len("TAGS?t1?UNIQ_KEY?K1") + more
        assert runs.find(sizes + long[8:], 0) == (size + len("CLUSTER?C?") + 1 <= 511)


def test_a_run_has_its_bounds() -> None:
    runs = finder()
    assert runs.find(b"".join(frame(number) for number in range(SENDS_MAX + 9)), 0)
    assert runs.count == SENDS_MAX
    assert runs.find(b"".join(frame(number, queue_id=number) for number in range(100)), 0)
    assert runs.count == PLACES_MAX
    assert runs.find(b"".join(frame(number, f"T{number // 2}") for number in range(200)), 0)
    assert runs.count == 2 * PLACES_MAX


def test_a_body_that_is_too_large_ends_a_run() -> None:
    runs = finder(body_bytes_max=10)
    assert runs.find(frame(1, body=bytes(10)) * 2 + frame(2, body=bytes(11)), 0)
    assert runs.count == 2
    assert not runs.find(frame(2, body=bytes(11)), 0)


def test_less_of_a_run_can_be_kept() -> None:
    data = b"".join(frame(number, "ABA"[number % 3]) for number in range(9))
    runs = finder()
    assert runs.find(data, 0)
    runs.keep(4)
    assert runs.places() == [SendPlace("A", 0, 0, 3), SendPlace("B", 0, 1, 1)]
    written = runs.write(CLIENT.packed, [7, 9], 0, 1)
    messages = list(decode_messages(written.records))
    assert [(message.topic, message.queue_offset) for message in messages] == [
        *(("A", 7), ("B", 9), ("A", 8), ("A", 9)),
    ]
    assert runs.end == sum(len(frame(number, "ABA"[number % 3])) for number in range(4))
    runs.keep(0)
    assert runs.places() == []


def test_who_waits_is_told() -> None:
    runs = finder()
    assert runs.find(frame(1), 0)
    assert runs.is_waiting
    eager = frame(1).replace(b"TAGS\\u0001t1", b"WAIT\\u0001false")
    eager = (len(eager) - 4).to_bytes(4, "big") + (len(eager) - 12).to_bytes(4, "big") + eager[8:]
    assert runs.find(eager + frame(1), 0)
    assert (runs.count, runs.is_waiting) == (1, False)


@given(
    st.lists(st.sampled_from([frame(1), frame(2, encoding=SerializeType.MSGPACK)]), max_size=4),
    st.lists(st.tuples(st.integers(0, 5_000), st.integers(0, 255)), max_size=4),
    st.integers(0, 60),
)
def test_any_bytes_have_as_many_requests_as_python_finds_at_least(
    frames: list[bytes], damage: list[tuple[int, int]], cut: int
) -> None:
    data = bytearray(b"".join(frames))
    for at, value in damage if data else []:
        data[at % len(data)] = value
    del data[max(0, len(data) - cut) :]
    runs = finder()
    if not runs.find(bytes(data), 0):
        return
    buffer = FrameBuffer()
    buffer.receive_data(bytes(data[: runs.end]))
    commands = [buffer.next_command() for _ in range(runs.count)]
    assert buffer.unfinished_bytes == 0
    for command in commands:
        assert command is not None
        command.decode_header(SendMessageRequestHeaderV2)
    written = runs.write(CLIENT.packed, [0] * len(runs.places()), 0, 1)
    bodies = [message.body for message in decode_messages(written.records)]
    assert bodies == [command.body for command in commands if command is not None]


# -- seals ---------------------------------------------------------------------------------------

KEY: Final = bytes(range(32))


def sealed_finder() -> SendRuns:
    assert native.loops is not None
    return SendRuns(
        native.loops,
        suffix=b"CLUSTER\x01C\x02",
        answers=answer_parts(HOST),
        store_host=HOST,
        body_bytes_max=2000,
        text_bytes_max=511,
        are_signed=True,
    )


def sealed_frames(opaques: list[int], sizes: list[int], encoding: SerializeType) -> list[bytes]:
    """Return requests with seals of one connection; `last` of who checks them is one before."""
    seal = FrameSeal(KEY)
    seal.last = opaques[0] - 1
    return [
        seal.sealed(frame(opaque, body=bytes(size), encoding=encoding), opaque % 2**31)
        for opaque, size in zip(opaques, sizes, strict=True)
    ]


def both_counts(runs: SendRuns, last: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Return how many seals are good, as the loop in C and as Python find."""
    found = []
    for is_able in (True, False):
        seal = FrameSeal(KEY)
        seal.last = last
        with monkeypatch.context() as patched:
            if not is_able:
                patched.setattr(runs, "_good_seals", lambda *_: -1)
            found.append(runs.sealed_count(seal))
        assert seal.last == last  # nothing is taken yet
    assert found[0] == found[1]
    return found[0]


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_good_seals_of_any_size_are_found_good(
    monkeypatch: pytest.MonkeyPatch, encoding: SerializeType
) -> None:
    sizes = [*range(140), 500, 1023, 1024, 2000]
    opaques = [3 * number + 1 for number in range(len(sizes))]
    runs = sealed_finder()
    assert runs.find(b"".join(sealed_frames(opaques, sizes, encoding)), 0)
    assert runs.access_key == ""
    assert both_counts(runs, 0, monkeypatch) == runs.count == len(sizes)
    seal = FrameSeal(KEY)
    runs.keep(10)
    runs.seal_taken(seal)
    assert seal.last == opaques[9]


@pytest.mark.parametrize("place", [0, 1, 5])
def test_a_bad_seal_ends_what_is_good_at_each_of_its_bytes(
    monkeypatch: pytest.MonkeyPatch, place: int
) -> None:
    for at in range(1, 40):  # the seal, and the end of the body
        frames = sealed_frames([*range(1, 7)], [50] * 6, SerializeType.MSGPACK)
        spoilt = bytearray(frames[place])
        spoilt[-at] ^= 1
        frames[place] = bytes(spoilt)
        runs = sealed_finder()
        assert runs.find(b"".join(frames), 0)
        assert both_counts(runs, 0, monkeypatch) == place


@pytest.mark.parametrize(
    ("order", "last", "good"),
    [
        ([1, 2, 3], 0, 3),
        ([1, 2, 3], 1, 0),
        ([1, 2, 2], 0, 2),
        ([1, 3, 2], 0, 2),
        ([3, 2, 1], 0, 1),
        ([1, 2, 3], 3, 0),
    ],
)
def test_numbers_that_do_not_rise_end_what_is_good(
    monkeypatch: pytest.MonkeyPatch, order: list[int], last: int, good: int
) -> None:
    frames = sealed_frames([1, 2, 3], [9] * 3, SerializeType.MSGPACK)
    runs = sealed_finder()
    assert runs.find(b"".join(frames[number - 1] for number in order), 0)
    assert both_counts(runs, last, monkeypatch) == good


def test_a_run_goes_on_where_opaques_begin_again(monkeypatch: pytest.MonkeyPatch) -> None:
    seal = FrameSeal(KEY)
    seal.last = first = 2**31 - 3
    opaques = [2**31 - 2, 2**31 - 1, 0, 1]
    data = b"".join(
        seal.sealed(frame(opaque, encoding=SerializeType.MSGPACK), opaque) for opaque in opaques
    )
    runs = sealed_finder()
    assert runs.find(data, 0)
    assert both_counts(runs, first, monkeypatch) == runs.count == 4
    taken = FrameSeal(KEY)
    taken.last = first
    runs.seal_taken(taken)
    assert taken.last == 2**31 + 1
    # And in the second turn with the key of that.
    more = b"".join(seal.sealed(frame(opaque), opaque) for opaque in (2, 3))
    assert runs.find(more, 0)
    assert both_counts(runs, taken.last, monkeypatch) == 2


def test_a_run_has_seals_or_signatures_of_rocketmqs_and_not_both() -> None:
    sealed = sealed_frames([1, 2], [9, 9], SerializeType.JSON)
    runs = sealed_finder()
    plain = frame(3, encoding=SerializeType.MSGPACK)
    assert runs.find(b"".join(sealed) + plain, 0)
    assert runs.count == 2  # who signs nothing is not of the run
    # Where nobody is asked, seals are as good as none.
    open_runs = finder()
    assert open_runs.find(b"".join(sealed) + plain, 0)
    assert open_runs.count == 3
    written = open_runs.write(CLIENT.packed, [0], 0, 0)
    assert [message.body for message in decode_messages(written.records)] == [
        bytes(9),
        bytes(9),
        b"body",
    ]


@pytest.mark.parametrize("size", [0, 31])
def test_a_frame_too_short_for_its_seal_is_in_no_run(size: int) -> None:
    whole = frame(1, body=bytes(size))
    data = whole[:4] + bytes([whole[4] | 0x80]) + whole[5:]
    assert not sealed_finder().find(data, 0)
    assert not finder().find(data, 0)


HOSTS: Final = [Host("10.1.2.3", 99).packed, Host("10.1.2.4", 7).packed, Host("10.1.2.5", 8).packed]
ALL_HOSTS: Final = b"".join(HOSTS)


def test_a_run_of_several_connections_says_what_each_has_in_it() -> None:
    first, unusual = frame(1, queue_id=1), b"\0\0\0\x09\0\0\0\x05{...}"
    parts = [first + frame(2), unusual + frame(3), frame(4) + unusual]
    runs, came = finder(), ReadTogether.of(parts)
    assert runs.find_of(came, ALL_HOSTS)
    assert runs.places() == [SendPlace("T", 1, 0, 1), SendPlace("T", 0, 1, 2)]
    assert runs.parts_with([0]) == {0}
    assert runs.parts_with([1]) == {0, 2}
    written = runs.write(HOSTS[0], [10, 20], 0, 1)
    messages = list(decode_messages(written.records))
    assert [message.born_host.packed for message in messages] == [HOSTS[0], HOSTS[0], HOSTS[2]]
    assert [message.queue_offset for message in messages] == [10, 20, 21]
    assert runs.share() == [2, 0, 1]
    assert [came.rest(number) for number in range(3)] == [b"", parts[1], unusual]
    # The next run is of one connection, with its own host again.
    assert runs.find(frame(5), 0)
    written = runs.write(CLIENT.packed, [0], 0, 1)
    assert [each.born_host for each in decode_messages(written.records)] == [CLIENT]


def test_of_a_run_that_was_cut_the_rest_is_left() -> None:
    runs, came = finder(), ReadTogether.of([frame(1, queue_id=1) + frame(2), frame(3)])
    assert runs.find_of(came, ALL_HOSTS)
    runs.keep(1)
    assert runs.share() == [1, 0]
    assert [came.rest(0), came.rest(1)] == [frame(2), frame(3)]
    assert runs.find_of(came, ALL_HOSTS)
    assert runs.share() == [1, 1]
    assert came.is_used_up


def test_some_connections_are_not_looked_at() -> None:
    runs, came = finder(), ReadTogether.of([frame(1), frame(2), frame(3)])
    assert runs.find_of(came, ALL_HOSTS, but={1})
    assert runs.share() == [1, 0, 1]
    assert [came.rest(number) for number in range(3)] == [b"", frame(2), b""]
    assert not runs.find_of(came, ALL_HOSTS, but={1})


def test_no_part_is_read_beyond_its_end() -> None:
    whole, runs = frame(1), finder()
    for cut in range(1, len(whole)):
        assert not runs.find_of(ReadTogether.of([whole[:cut], whole[cut:]]), ALL_HOSTS)
        came = ReadTogether.of([whole[:cut], whole])
        assert runs.find_of(came, ALL_HOSTS)
        assert runs.share() == [0, 1]
        assert came.rest(0) == whole[:cut]


def test_a_run_of_several_connections_is_full_at_some_number_of_requests() -> None:
    runs = finder()
    came = ReadTogether.of([frame(1) * (SENDS_MAX - 1), frame(2) * 3, frame(3)])
    assert runs.find_of(came, ALL_HOSTS)
    assert runs.count == SENDS_MAX
    fullness = [runs.is_full]
    assert runs.share() == [SENDS_MAX - 1, 1, 0]
    assert runs.find_of(came, ALL_HOSTS)
    fullness.append(runs.is_full)
    assert fullness == [True, False]
    assert runs.share() == [0, 2, 1]
