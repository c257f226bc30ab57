"""JSON bodies as columns: of any table with a `body`, from logs, brokers or an archive.

    orders = with_json_bodies(table, "order long, region string")
    orders.where("bodyError is null").select("queueOffset", "json.order", "json.region")

No row is dropped, and no query ends because of a body: what is wrong with it is in a column.
"""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import StringType, StructField, StructType

from tandem.spark.errors import OptionError

_WHOLE: Final = "_body_that_is_no_json"
_COMPRESSED: Final = 1
"""The bit of `sysFlag` of a body that is stored compressed."""


def with_json_bodies(
    table: DataFrame, schema: str | StructType, *, column: str = "json", error: str = "bodyError"
) -> DataFrame:
    """Return the table with two columns more: the body as a struct, and why it is none.

    `schema` is that of the JSON object, as a record or as Spark writes it: "order long, tags
    array<string>". Fields that a body lacks are null; fields that the schema lacks are left out.

    Raises:
        OptionError: the table has no body, or has columns of these names.
    """
    missing = [name for name in ("body", "sysFlag") if name not in table.columns]
    taken = [name for name in (column, error) if name in table.columns]
    if missing or taken:
        raise OptionError(
            f"the table has no column {', '.join(missing)}; select it before"
            if missing
            else f"the table has a column {', '.join(taken)} already; give another name",
            missing or taken,
        )
    record = StructType.fromDDL(schema) if isinstance(schema, str) else schema
    if not isinstance(record, StructType):
        raise OptionError(f"the schema {schema} is no list of fields", ["schema"])
    with_whole = StructType([*record.fields, StructField(_WHOLE, StringType())])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _WHOLE}
    is_compressed = f.col("sysFlag").bitwiseAND(_COMPRESSED) != 0
    text = f.when(~is_compressed, f.try_validate_utf8(f.col("body").cast("string")))
    parsed = f.from_json(text, with_whole, options)
    why = (
        f.when(is_compressed, "the body is compressed: read with decompress=true")
        .when(f.coalesce(f.length("body"), f.lit(0)) == 0, "the body is empty")
        .when(text.isNull(), "the body is not UTF-8")
        .when(parsed.isNull() | parsed[_WHOLE].isNotNull(), "the body is no JSON of this schema")
    )
    value = f.when(why.isNull(), parsed.dropFields(_WHOLE))
    return table.withColumns({column: value, error: why})
