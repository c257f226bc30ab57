import pytest

from node.filter.sql92_tokens import (
    DECIMAL,
    EOF,
    FLOATING_POINT,
    ID,
    STRING,
    LexicalError,
    Tokens,
    escaped,
)


def kinds_of(text: str) -> list[str]:
    tokens = Tokens(text)
    kinds = []
    while (token := tokens.take()).kind != EOF:
        kinds.append(token.kind)
    return kinds


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("a>=1", [ID, ">=", DECIMAL]),
        ("not NOT noT nota", ["NOT", "NOT", "NOT", ID]),
        ("1L 0 0L 012", [DECIMAL, DECIMAL, DECIMAL, ID, DECIMAL, DECIMAL]),
        ("1.5 5. .5 5E1 1e-3 012.5", [FLOATING_POINT] * 6),
        ("1E+", [DECIMAL, ID, "+"]),
        ("'it''s' ''", [STRING, STRING]),
        ("<> < > = , ( ) + -", ["<>", "<", ">", "=", ",", "(", ")", "+", "-"]),
        ("a -- no token\rb", [ID, ID]),
        ("a /* * / ** */ b", [ID, ID]),
        ("$a _b A9", [ID, ID, ID]),
    ],
)
def test_the_longest_token_counts(text: str, kinds: list[str]) -> None:
    assert kinds_of(text) == kinds


def test_a_comment_without_the_end_of_its_line_is_two_minus_signs() -> None:
    assert kinds_of("a --b") == [ID, "-", "-", ID]
    assert kinds_of("a --b\n") == [ID]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a = 1;", 'line 1, column 7.  Encountered: <EOF> after : ""'),
        ("a = ;\n", 'line 1, column 5.  Encountered: ";" (59), after : ""'),
        ("a\t;b", 'line 1, column 9.  Encountered: ";" (59), after : ""'),
        ("a = \n;", 'line 2, column 2.  Encountered: <EOF> after : ""'),
        ("a.b = 1", 'line 1, column 3.  Encountered: "b" (98), after : "."'),
        ("/* x", 'line 1, column 5.  Encountered: <EOF> after : "/* x"'),
        ("a = 'x", 'line 1, column 7.  Encountered: <EOF> after : "\\\'x"'),
        ("a = .", 'line 1, column 6.  Encountered: <EOF> after : ""'),
        ("中 = 1", 'line 1, column 1.  Encountered: "\\u4e2d" (20013), after : ""'),
    ],
)
def test_errors_are_in_the_words_of_rocketmq(text: str, message: str) -> None:
    with pytest.raises(LexicalError) as caught:
        kinds_of(text)
    assert str(caught.value) == (
        f"org.apache.rocketmq.filter.parser.TokenMgrError: Lexical error at {message}"
    )


def test_a_place_is_line_and_column_with_tabs_of_eight() -> None:
    tokens = Tokens("a\tb\r\nc\rd")
    assert [tokens.place(offset) for offset in range(-1, 8)] == [
        *((0, 0), (1, 1), (1, 8), (1, 9), (1, 10), (1, 11), (2, 1), (2, 2), (3, 1)),
    ]


def test_what_cannot_be_shown_is_escaped() -> None:
    assert escaped("a\0\b\t\n\f\r\"'\\é~") == "a\\b\\t\\n\\f\\r\\\"\\'\\\\\\u00e9~"
