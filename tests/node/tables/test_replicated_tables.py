from node.tables.journal.journal_records import JOURNAL_FORMAT
from node.tables.replicated_level import LevelPart
from node.tables.replicated_tables import REPLICATED_TABLES, tables_of
from tandem.wire.feature_level import LEVEL_MAX, LEVELS, feature_level


def test_every_table_is_of_a_level() -> None:
    assert tables_of(LEVEL_MAX) == REPLICATED_TABLES
    assert JOURNAL_FORMAT.version == feature_level(LEVEL_MAX).journal


def test_a_version_has_the_tables_of_its_levels_only() -> None:
    for level in LEVELS:
        known = tables_of(level.number)
        assert {each.part.version for each in known} <= set(range(level.journal + 1))
    assert LevelPart not in {each.part for each in tables_of(1)}
