"""A unit written field by field is read field by field."""

import struct

import numpy as np
import pytest

from tandem.wire.store_layout import BATCH_CQ_STORE_UNIT, CQ_STORE_UNIT, INDEX_UNIT
from tandem.wire.unit_types import BATCH_CQ_UNIT_TYPE, CQ_UNIT_TYPE, INDEX_UNIT_TYPE


@pytest.mark.parametrize(
    ("layout", "kind", "values"),
    [
        (CQ_STORE_UNIT, CQ_UNIT_TYPE, (2**62, 1, -3)),
        (BATCH_CQ_STORE_UNIT, BATCH_CQ_UNIT_TYPE, (1, 2, -3, 4, 5, 6, -1, 0)),
        (INDEX_UNIT, INDEX_UNIT_TYPE, (2**31 - 1, 2**62, 7, 19)),
    ],
)
def test_the_types_have_the_layouts_fields(
    layout: struct.Struct, kind: np.dtype[np.void], values: tuple[int, ...]
) -> None:
    data = layout.pack(*values) * 2
    assert np.frombuffer(data, kind).tolist() == [values, values]
