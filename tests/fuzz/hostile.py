"""Values that break decoders, and what can be done to bytes that would be read."""

from random import Random
from typing import Any, Final

import msgspec

INTEGERS: Final = (
    *(0, 1, -1, 2, 7, 255, 256, 65_535, 65_536),
    *(2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**32 - 1, 2**32),
    *(2**53 + 1, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**64 - 1, 2**64, 10**30),
)
TEXTS: Final = (
    *("", " ", "a", "*", "||", "a||b", "\x00", "\x01", "\x02", "\r\n", "../x", "/", "a/b", "%"),
    *("null", "true", "false", "NaN", "1e400", "-0", "0x10", "1_000", " 1", "\u0663\u0663"),
    *("\u4e2d\u6587", "\U0001f600", "\ufeff", "\u202e", "\u2028", "x" * 300, "\u4e2d" * 11_000),
    *("DELAY\x010\x02", "DELAY\x0199\x02", "DELAY\x01x\x02", "WAIT\x01false\x02", "UNIQ_KEY\x01"),
    *("TRAN_MSG\x01true\x02", "TIMER_DELAY_SEC\x011\x02", "TIMER_DELIVER_MS\x01" + "9" * 5_000),
    *("INNER_NUM\x01-1\x02", "INNER_NUM\x0199999999999\x02", "KEYS\x01" + "k " * 500 + "\x02"),
    *("CLUSTER\x01c\x02POP_CK\x01x\x02", "__CRC32#\x01x\x02", "TANDEM_ACK\x01flushed\x02"),
    *("TAGS\x01" + "t" * 20_000 + "\x02", "%RETRY%g", "%DLQ%g", "SCHEDULE_TOPIC_XXXX"),
    *("rmq_sys_TANDEM_JOURNAL", "rmq_sys_wheel_timer", "RMQ_SYS_TRANS_HALF_TOPIC", "TBW102"),
)
RAW_JSON: Final = (
    *(
        b"",
        b"null",
        b"true",
        b"[]",
        b"{}",
        b'""',
        b"NaN",
        b"Infinity",
        b"-",
        b"1e999",
        b"1" * 5_000,
    ),
    *(b'"\xff"', b'"\\ud800"', b'"\\u0000"', b'{"\xff":1}', b"[1,]", b"{0:1}", b"{0:{1:2}}", b'"'),
    *(b"[" * 5_000, b"[" * 900 + b"]" * 900, b'{"a":' * 5_000, b'{"a":' * 300 + b"1" + b"}" * 300),
    *(b"18446744073709551616", b"-9223372036854775809", b'"18446744073709551616"', b"1.5", b"1e3"),
)


def integer(chance: Random) -> int:
    """A number at, near or beyond the end of some range."""
    number = chance.choice(INTEGERS)
    return number + chance.randint(-2, 2) if chance.random() < 0.2 else number


def text(chance: Random) -> str:
    """A text that somebody may take for something else."""
    if chance.random() < 0.8:
        return chance.choice(TEXTS)
    size = chance.randrange(1, 20)
    return "".join(chr(chance.choice((1, 2, 10, 34, 64, 92, 0x7F, 0x4E2D))) for _ in range(size))


def value(chance: Random, depth: int = 0) -> Any:  # noqa: ANN401 - whatever JSON can hold
    """A value of JSON."""
    kind = chance.randrange(8 if depth < 3 else 6)
    if kind < 2:
        return integer(chance) if chance.random() < 0.5 else str(integer(chance))
    if kind < 4:
        return text(chance)
    if kind < 6:
        return chance.choice((None, True, False, 0.5, -1e300, [], {}))
    if kind == 6:
        return [value(chance, depth + 1) for _ in range(chance.randrange(4))]
    return {text(chance): value(chance, depth + 1) for _ in range(chance.randrange(4))}


def json_of(chance: Random, template: dict[str, Any]) -> bytes:
    """`template` as JSON, with some of its values, at any depth, in the place of others."""
    if chance.random() < 0.05:
        return chance.choice(RAW_JSON)
    fields = _changed(chance, template)
    data = _encode(fields)
    if chance.random() < 0.25:
        # What no encoder writes: raw text in the place of a value.
        at = data.find(b":", chance.randrange(len(data)))
        if at > 0:
            end = min((e for e in (data.find(b",", at), data.find(b"}", at)) if e > 0), default=at)
            data = data[: at + 1] + chance.choice(RAW_JSON) + data[end:]
    return broken(chance, data) if chance.random() < 0.1 else data


def broken(chance: Random, data: bytes) -> bytes:  # noqa: PLR0911 - one for each way
    """Bytes as they are after a bad line, a crash or a bad day."""
    if not data:
        return chance.randbytes(chance.randrange(9))
    at = chance.randrange(len(data))
    match chance.randrange(9):
        case 0:
            return data[:at]
        case 1:
            return data[at:]
        case 2:
            return data[:at] + bytes([data[at] ^ (1 << chance.randrange(8))]) + data[at + 1 :]
        case 3:
            return data[:at] + chance.randbytes(chance.randrange(1, 9)) + data[at:]
        case 4:
            return (
                data[:at] + chance.choice((b"\xff", b"\0", b"\x80", b"\n", b'"')) + data[at + 1 :]
            )
        case 5:
            wide = chance.choice((2, 4, 8))
            number = chance.choice(INTEGERS) & (1 << 8 * wide) - 1
            return data[:at] + number.to_bytes(wide, "big") + data[at + wide :]
        case 6:
            size = chance.randrange(1, 64)
            return data[:at] + data[at : at + size] * chance.choice((2, 3, 50)) + data[at + size :]
        case 7:
            size = chance.randrange(1, 512)
            return data[:at] + bytes(len(data[at : at + size])) + data[at + size :]
        case _:
            return data + chance.choice((b"\0" * 8, data[:at], b"\xff" * 40, b"\n"))


def _changed(chance: Random, fields: dict[str, Any]) -> dict[str, Any]:
    fields = dict(fields)
    for name in list(fields):
        inner = fields[name]
        if isinstance(inner, dict) and inner and chance.random() < 0.6:
            fields[name] = _changed(chance, inner)
        elif isinstance(inner, list) and inner and isinstance(inner[0], dict):
            fields[name] = [_changed(chance, each) for each in inner]
    match chance.randrange(6):
        case 0 if fields:
            del fields[chance.choice(list(fields))]
        case 1:
            fields[text(chance)] = value(chance)
        case 2 | 3 | 4 if fields:
            fields[chance.choice(list(fields))] = value(chance)
        case _:
            pass
    return fields


def _encode(fields: Any) -> bytes:  # noqa: ANN401 - whatever JSON can hold
    try:
        return msgspec.json.encode(fields)
    except OverflowError:
        return msgspec.json.encode(_in_text(fields)).replace(b'"\x7f', b"").replace(b'\x7f"', b"")


def _in_text(inner: Any) -> Any:  # noqa: ANN401 - whatever JSON can hold
    """Numbers that msgspec does not write, marked, so that the quotes can be taken away."""
    if isinstance(inner, dict):
        return {key: _in_text(each) for key, each in inner.items()}
    if isinstance(inner, list):
        return [_in_text(each) for each in inner]
    if isinstance(inner, int) and not -(2**63) <= inner < 2**64:
        return f"\x7f{inner}\x7f"
    return inner
