import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.config.properties import PropertyError, parse_properties


def pairs(text: str) -> list[tuple[str, str, int]]:
    return [(item.key, item.value, item.line) for item in parse_properties(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b", [("a", "b", 1)]),
        ("a = b ", [("a", "b ", 1)]),
        ("a:b", [("a", "b", 1)]),
        ("a b", [("a", "b", 1)]),
        ("  a\t=\tb", [("a", "b", 1)]),
        ("a", [("a", "", 1)]),
        ("a=", [("a", "", 1)]),
        ("=b", [("", "b", 1)]),
        ("a==b", [("a", "=b", 1)]),
        ("a b=c", [("a", "b=c", 1)]),
        ("# c\n! d\n\na=b", [("a", "b", 4)]),
        ("# c \\\na=b", [("a", "b", 2)]),
        ("a=b\\\n   c\nd=e", [("a", "bc", 1), ("d", "e", 3)]),
        ("a=b\\\n#c", [("a", "b#c", 1)]),
        ("a=b\\", [("a", "b", 1)]),
        ("a=b\\\\\nc=d", [("a", "b\\", 1), ("c", "d", 2)]),
        ("a\\=b=c", [("a=b", "c", 1)]),
        ("a\\ b c", [("a b", "c", 1)]),
        ("a=\\t\\n\\q", [("a", "\t\nq", 1)]),
        ("a=\\u00e4\\u20AC", [("a", "ä€", 1)]),
        ("a=1\r\nb=2\rc=3", [("a", "1", 1), ("b", "2", 2), ("c", "3", 3)]),
        ("a=1\na=2", [("a", "1", 1), ("a", "2", 2)]),
        ("", []),
    ],
)
def test_reads_what_java_reads(text: str, expected: list[tuple[str, str, int]]) -> None:
    assert pairs(text) == expected


@pytest.mark.parametrize("value", ["\\u12", "\\uxyza", "\\u"])
def test_a_bad_unicode_escape_is_told_with_its_line(value: str) -> None:
    with pytest.raises(PropertyError) as caught:
        parse_properties(f"a=b\nc={value}")
    assert caught.value.line == 2


@given(st.text())
def test_any_text_is_properties_or_a_property_error(text: str) -> None:
    try:
        found = parse_properties(text)
    except PropertyError:
        return
    assert all(item.line >= 1 for item in found)


@given(st.dictionaries(st.from_regex(r"[a-zA-Z]{1,9}", fullmatch=True), st.text(), max_size=9))
def test_what_is_escaped_comes_back(expected: dict[str, str]) -> None:
    escaped = {key: "".join(f"\\u{unit:04x}" for unit in _utf16(value)) for key, value in expected.items()}
    text = "\n".join(f"{key}={value}" for key, value in escaped.items())
    found = {item.key: item.value for item in parse_properties(text)}
    assert {key: list(_utf16(value)) for key, value in found.items()} == {
        key: list(_utf16(value)) for key, value in expected.items()
    }


def _utf16(text: str) -> memoryview:
    return memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H")
