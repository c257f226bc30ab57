"""Entries as rows, in the order in which they count."""

import pytest
import typer

from tandem.cli.rights_table import entry_columns, entry_of, entry_rows
from tandem.wire.access_control import PolicyEntryInfo, PolicyInfo


def info(decision: str, resource: str, *networks: str) -> PolicyEntryInfo:
    return PolicyEntryInfo(resource, ["Pub"], list(networks) or None, decision)


def test_what_is_looked_at_first_comes_first() -> None:
    policies = [
        PolicyInfo("Default", [info("Allow", "Topic:T")]),
        PolicyInfo(
            "Custom",
            [
                info("Allow", "*"),
                info("Allow", "Topic:*"),
                info("Allow", "Topic:a*"),
                info("Allow", "Topic:ab*"),
                info("Deny", "Topic:ab*"),
                info("Allow", "Topic:T", "10.0.0.0/8"),
                info("Allow", "written by another version"),
            ],
        ),
    ]
    rows = entry_rows(policies)
    assert [(row.decision, row.resource) for row in rows] == [
        ("Allow", "Topic:T"),
        ("Deny", "Topic:ab*"),
        ("Allow", "Topic:ab*"),
        ("Allow", "Topic:a*"),
        ("Allow", "Topic:*"),
        ("Allow", "*"),
        ("Allow", "written by another version"),
        ("Allow", "Topic:T"),
    ]
    cells = [[column.value(row) for column in entry_columns()] for row in (rows[0], rows[-1])]
    assert cells == [
        ["Allow", "Pub", "Topic:T", "10.0.0.0/8", "custom"],
        ["Allow", "Pub", "Topic:T", "anywhere", "default"],
    ]


def test_arguments_are_an_entry_or_say_what_is_wrong() -> None:
    made = entry_of("Allow", "Pub, Sub", "Topic:T", ["10.0.0.0/8"])
    assert made == PolicyEntryInfo("Topic:T", ["Pub", "Sub"], ["10.0.0.0/8"], "Allow")
    for rights, resource, network in (
        ("", "Topic:T", "10.0.0.1"),
        ("Write", "Topic:T", "10.0.0.1"),
        ("Pub", "T", "10.0.0.1"),
        ("Pub", "Topic:T", "somewhere"),
    ):
        with pytest.raises(typer.BadParameter):
            entry_of("Allow", rights, resource, [network])
