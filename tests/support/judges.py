"""Other people's programs for what we compute: whoever is wrong, it is not both in the same way."""

import importlib
from collections.abc import Callable
from typing import Any, Final

# Both by name: neither says what its types are.
crc32_of: Final[Callable[..., int]] = importlib.import_module("crcmod").mkCrcFun(
    0x104C11DB7, initCrc=0, rev=True, xorOut=0xFFFFFFFF
)
"""The CRC-32 of zip, by crcmod: the polynomial with its top bit, bits reflected. A second argument
is the CRC of what comes before."""

_MSGPACK: Final = importlib.import_module("msgpack")


def pack(value: object) -> bytes:
    """Encode as msgpack, by the package of that name."""
    packed: bytes = _MSGPACK.packb(value)
    return packed


def unpack(data: bytes) -> Any:  # noqa: ANN401 - whatever the bytes say
    """Decode msgpack, by the package of that name; nothing may follow."""
    return _MSGPACK.unpackb(data, strict_map_key=False)
