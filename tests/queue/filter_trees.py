"""Random filters: as trees, written as text, and judged by a simple model of three truth values."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from hypothesis import strategies as st

from wsrm_mq.store.filtering import FIELDS, Comparison, Every, Field, Filter, Not, Some, Value

PROPERTIES: Final = ("id", "status", "größe", "type", "a.b-c")
"""One of them has the name of a column."""
TEXTS: Final = st.sampled_from(["", "7", "a", "A", "ab", "a%", "O'Hara", "'; DROP TABLE entry; --", "ä", "a\\b"])
NUMBERS: Final = st.integers(-2, 8) | st.sampled_from([0.5, 7.0, -1.5, 2**63 - 1, -(2**63), 1e300])
VALUES: Final = TEXTS | NUMBERS | st.booleans()
OPERATORS: Final = ("=", "!=", "<", "<=", ">", ">=")
PATTERNS: Final = st.text(st.sampled_from("aAb%_7'ä"), max_size=5)


def _comparisons(field: Field) -> st.SearchStrategy[Filter]:
    known = None if field.is_property else FIELDS.get(field.name)
    values = VALUES if known is None else TEXTS if known.kind is str else NUMBERS
    return st.one_of(
        st.builds(lambda operator, value: Comparison(field, operator, (value,)), st.sampled_from(OPERATORS), values),
        st.builds(lambda found: Comparison(field, "in", tuple(found)), st.lists(values, min_size=1, max_size=3)),
        st.just(Comparison(field, "is null")),
        *([] if known and known.kind is int else [st.builds(lambda p: Comparison(field, "like", (p,)), PATTERNS)]),
    )


def _fields() -> st.SearchStrategy[Field]:
    with_slash = st.builds(Field, st.sampled_from(PROPERTIES), st.just(True))
    without = st.builds(Field, st.sampled_from([*PROPERTIES, *FIELDS]), st.just(False))
    return with_slash | without


def filters() -> st.SearchStrategy[Filter]:
    return st.recursive(
        _fields().flatmap(_comparisons),
        lambda part: st.one_of(
            st.builds(Not, part),
            st.builds(lambda parts: Every(tuple(parts)), st.lists(part, min_size=2, max_size=3)),
            st.builds(lambda parts: Some(tuple(parts)), st.lists(part, min_size=2, max_size=3)),
        ),
        max_leaves=6,
    )


# written


def written(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "False"
    return repr(value) if isinstance(value, int | float) else "'" + value.replace("'", "''") + "'"


def text_of(wanted: Filter) -> str:
    match wanted:
        case Comparison(field, operator, values):
            name = f"/{field.name}" if field.is_property else field.name
            if operator == "is null":
                return f"{name} IS NULL"
            if operator == "in":
                return f"{name} in ({', '.join(map(written, values))})"
            return f"{name} {operator} {written(values[0])}"
        case Not(of):
            return f"not ({text_of(of)})"
        case Every(of):
            return " and ".join(f"({text_of(one)})" for one in of)
        case Some(of):
            return " OR ".join(f"({text_of(one)})" for one in of)


# judged

Row = Mapping[str, Any]
"""The columns of a message, and ``properties``."""


def truth(wanted: Filter, row: Row) -> bool | None:
    """Whether a message fits; ``None``: it is unknown."""
    match wanted:
        case Comparison(field, operator, values):
            if field.name in FIELDS and not field.is_property:
                value = row[field.name]
            else:
                value = row["properties"].get(field.name)
            return value is None if operator == "is null" else _compared(value, operator, values)
        case Not(of):
            found = truth(of, row)
            return None if found is None else not found
        case Every(of):
            found_all = [truth(one, row) for one in of]
            return False if False in found_all else None if None in found_all else True
        case Some(of):
            found_any = [truth(one, row) for one in of]
            return True if True in found_any else None if None in found_any else False


_IN_PYTHON: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "<": lambda one, other: one < other,
    "<=": lambda one, other: one <= other,
    ">": lambda one, other: one > other,
    ">=": lambda one, other: one >= other,
    "like": lambda one, pattern: re.fullmatch(_pattern(pattern), _folded(one), re.DOTALL) is not None,
}


def _compared(value: Any, operator: str, values: tuple[Value, ...]) -> bool | None:
    if value is None:
        return None
    if operator in ("=", "in"):
        return value in values
    if operator == "!=":
        return value not in values
    if isinstance(value, str) != isinstance(values[0], str):
        return None
    return _IN_PYTHON[operator](value, values[0])


def _pattern(pattern: str) -> str:
    return "".join({"%": ".*", "_": "."}.get(one, re.escape(one)) for one in _folded(pattern))


def _folded(text: str) -> str:
    """Capitals of ASCII are as small letters."""
    return re.sub("[A-Z]", lambda found: found[0].lower(), text)
