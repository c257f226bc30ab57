"""Has Spark move only those columns into the JVM that a query uses. Off unless it is asked for.

    prune_columns(session)          # or spark.tandem.columnPruning=true among the settings

The option `columns`, or a schema, does the same by hand, and uses nothing but Spark's public API.

Spark 4.3 does not say to a Python data source which columns a query wants: its PythonScanBuilder
takes filters only, and shares what they changed between all queries of one `load()`. So we add two
rules to the session, on the driver alone, which `PrunedScans.java` holds and Spark's own compiler
compiles:

    Prune      after Spark's optimizer, a projection over a scan of ours makes a scan of the columns
               that the projection and the filters between refer to. Its reader is its own; what
               is read is what was planned once for the `load()`, so a table stays a snapshot.
    BareScan   a scan with nothing over it is not copied row by row a second time.

Nothing else changes: filters stay where they are, streams are not touched, and a session without
the rules gives the same rows. The reader of a pruned scan gets a schema whose fields are marked
(`is_pruned`), and does not plan. Why it is off: docs/decisions/columns-are-pruned-when-asked.md.
"""

import logging
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

SETTING: Final = "spark.tandem.columnPruning"
FORMATS: Final = ("commitlog", "tandem")
"""Sources whose readers know `is_pruned`."""

_MARK = "tandem.pruned"
_RULES = Path(__file__).with_name("PrunedScans.java")

_rules_of: Final[dict[Any, Any]] = {}

logger = logging.getLogger(__name__)


def prune_columns(session: SparkSession) -> bool:
    """Add the rules to a session, once; return whether they are there.

    A Spark that they do not fit is logged, and reads all columns as before.
    """
    jvm: Any = session.sparkContext._jvm  # noqa: SLF001 - there is no other way into the JVM
    try:
        formats = jvm.java.util.ArrayList()
        for name in FORMATS:
            formats.add(name)
        _compiled(jvm).install(session._jsparkSession.experimental(), formats)  # noqa: SLF001
    except Py4JError as error:
        logger.warning(
            "Spark %s reads all columns of our sources, also those that a query does not use: the"
            " rules that prune them do not fit it (%s). Name the columns with the option columns",
            session.version,
            str(error).partition("\n")[0],
        )
        return False
    return True


def is_wanted(session: SparkSession) -> bool:
    """Say whether the settings of a session ask for the rules."""
    return str(session.conf.get(SETTING, "false")).lower() == "true"


def _compiled(jvm: Any) -> Any:  # noqa: ANN401 - py4j's, as the objects that it gives
    """Return the rules, compiled once a JVM: py4j remembers methods by the names of classes."""
    if jvm not in _rules_of:
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(jvm.Thread.currentThread().getContextClassLoader())
        compiler.cook(_RULES.read_text())
        rules = compiler.getClassLoader().loadClass("tandem.spark.PrunedScans")
        _rules_of[jvm] = rules.newInstance()
    return _rules_of[jvm]


def is_pruned(schema: StructType) -> bool:
    """Say whether a reader gets `schema` because a query uses no more: then it must not plan."""
    return any(_MARK in field.metadata for field in schema.fields)
