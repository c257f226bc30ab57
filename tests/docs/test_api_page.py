"""docs/api.md is what the docstrings say now, and has every public name."""

import inspect

import tandem
from tests.support import api_page


def test_the_page_is_up_to_date() -> None:
    written = api_page.PAGE.read_text(encoding="utf-8")
    assert written == api_page.page(), "run scripts/api-reference"


def test_every_public_class_is_on_the_page_and_says_what_it_is() -> None:
    page = api_page.page()
    for name in tandem.__all__:
        value = getattr(tandem, name)
        if inspect.isclass(value):
            assert f"\n### {name}\n" in page
            assert value.__doc__
            silent = [
                member
                for member in api_page.read_class(value, name).members
                if member.kind == "method" and not member.text
            ]
            assert silent == [], f"methods of {name} without a docstring"
