"""The CRC property: one checksum over a whole record, kept at the end of its properties.

    | TOTALSIZE | ... | PROPERTIES: name 0x01 value 0x02 ... | __CRC32# 0x01 5500212460 0x02 |
    |<-------------------- what the CRC covers ------------->|<-------- 20 bytes --------->|

The value is the CRC-32 of everything before those 20 bytes, top bit clear, written with its
lowest digit first and filled up with zeros: 642120055 becomes 5500212460. It covers places and
times too, so it can only be computed when the record is appended.

Written where the setting `enabled_append_prop_crc` is on, checked where `force_verify_prop_crc` is:
there it replaces the CRC of the body, and a record without it counts as damaged.

Source: RocketMQ 5.3.3, MessageExtEncoder, CommitLog.DefaultAppendMessageCallback and
checkMessageAndReturnSize, MessageDecoder.createCrc32.
"""

from typing import Final

import numpy as np

from tandem.wire.crc import CRC_MASK, raw_crc32
from tandem.wire.message_properties import PROPERTY_CRC32, without_property
from tandem.wire.record_rule import Buffer, LogBytes
from tandem.wire.record_scan import Bools, RecordColumns

CRC32_RESERVED_LEN: Final = 20
"""How many bytes the property takes, its separators included."""

_DIGITS: Final = 10
_NAME: Final = PROPERTY_CRC32.encode()
_HEAD: Final = _NAME + b"\x01"
_RESERVED: Final = _HEAD + b"0" * _DIGITS + b"\x02"
_POWERS: Final = 10 ** np.arange(_DIGITS, dtype=np.int64)

assert len(_RESERVED) == CRC32_RESERVED_LEN


def with_reserved_crc(properties: bytes) -> bytes:
    """Return the property string with room for the CRC at its end.

    A property of that name that a client made up is dropped, and a missing separator put in.

    Source: CommitLog.asyncPutMessage, MessageExtEncoder.encode.
    """
    properties = without_property(properties, _NAME)
    if properties and properties[-1:] != b"\x02":
        properties += b"\x02"
    return properties + _RESERVED


def reserve_batch_crc(properties: bytes) -> bytes:
    """Return the property string of a record out of a batch with room for the CRC at its end.

    Nothing is dropped or put in here: without a separator in front, the CRC becomes part of the
    last property's value. That happens only to batches without properties of their own, and
    RocketMQ's nodes and ours always add one.

    Source: MessageExtEncoder.encode for MessageExtBatch.
    """
    return properties + _RESERVED


def write_crc(buffer: bytearray | memoryview, start: int, total_size: bytes, end: int) -> None:
    """Fill in the CRC of the record at `start` to `end`, which is complete but for TOTALSIZE.

    Those 4 bytes are given in `total_size`: the writer of a record writes them last.
    """
    with memoryview(buffer) as view, view[start + 4 : end - CRC32_RESERVED_LEN] as covered:
        crc = raw_crc32(covered, raw_crc32(total_size)) & CRC_MASK
        view[end - _DIGITS - 1 : end - 1] = _digits(crc)


def _digits(crc: int) -> bytes:
    return str(crc)[::-1].ljust(_DIGITS, "0").encode()


def property_crc_fault(buffer: LogBytes, start: int, end: int) -> str | None:
    """Return what is wrong with the CRC of the record at `start` to `end`, None if nothing is.

    Source: CommitLog.checkMessageAndReturnSize with forceVerifyPropCRC.
    """
    stored = bytes(buffer[end - CRC32_RESERVED_LEN : end])
    digits = stored[len(_HEAD) : -1]
    if not (stored.startswith(_HEAD) and stored.endswith(b"\x02") and digits.isdigit()):
        return f"no property {PROPERTY_CRC32} at its end"
    with memoryview(buffer) as view, view[start : end - CRC32_RESERVED_LEN] as covered:
        crc = raw_crc32(covered) & CRC_MASK
    expected = int(digits[::-1])
    return None if crc == expected else f"its CRC is {crc}, the record says {expected}"


def property_crc_agrees(buffer: Buffer, columns: RecordColumns) -> Bools:
    """Say which records carry the CRC property with the right value. Not sound ones do not.

    The columnar form of `property_crc_fault`.
    """
    roomy = columns.sound & (columns.properties_size >= CRC32_RESERVED_LEN)
    agrees = np.zeros(len(columns), np.bool_)
    rows = columns.take(roomy)
    ends = rows.start + rows.size
    places = ends[:, None] - np.arange(CRC32_RESERVED_LEN, 0, -1)
    stored = np.frombuffer(buffer, np.uint8)[places]
    digits = stored[:, len(_HEAD) : -1].astype(np.int64) - ord("0")
    expected = digits @ _POWERS
    template = np.frombuffer(_RESERVED, np.uint8)
    formed = (stored[:, : len(_HEAD)] == template[: len(_HEAD)]).all(axis=1)
    formed &= (stored[:, -1] == template[-1]) & ((digits >= 0) & (digits <= 9)).all(axis=1)
    with memoryview(buffer) as view:
        crcs = [
            raw_crc32(view[start:end])
            for start, end in zip(
                rows.start.tolist(), (ends - CRC32_RESERVED_LEN).tolist(), strict=True
            )
        ]
    agrees[roomy] = formed & ((np.array(crcs, np.int64) & CRC_MASK) == expected)
    return agrees
