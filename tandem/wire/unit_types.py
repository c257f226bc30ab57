"""Units of queues and of index files as numpy types: the layouts of `store_layout`, by field.

Apart from there, because numpy takes a tenth of a second to load, and not everybody reads units.
"""

from typing import Final

import numpy as np

from tandem.wire.store_layout import (
    BATCH_CQ_STORE_UNIT_SIZE,
    CQ_STORE_UNIT_SIZE,
    INDEX_UNIT_BYTES,
)

CQ_UNIT_TYPE: Final = np.dtype([("offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])

BATCH_CQ_UNIT_TYPE: Final = np.dtype(
    [
        ("offset", ">i8"),
        ("size", ">i4"),
        ("tags_code", ">i8"),
        ("store_timestamp_ms", ">i8"),
        ("base_offset", ">i8"),
        ("batch_size", ">i2"),
        ("compacted_offset", ">i4"),
        ("reserved", ">i4"),
    ]
)

INDEX_UNIT_TYPE: Final = np.dtype(
    [("key_hash", ">i4"), ("physical_offset", ">i8"), ("seconds", ">i4"), ("before", ">i4")]
)

assert CQ_UNIT_TYPE.itemsize == CQ_STORE_UNIT_SIZE
assert BATCH_CQ_UNIT_TYPE.itemsize == BATCH_CQ_STORE_UNIT_SIZE
assert INDEX_UNIT_TYPE.itemsize == INDEX_UNIT_BYTES
