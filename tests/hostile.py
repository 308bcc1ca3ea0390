"""The worst a stranger's run document can hold: every free text of a run replaced by something nasty."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from itertools import cycle
from typing import Any

MARK = "zq7"
"""Stands in every nasty text, so that a test can find what became of it."""

TEXTS = (
    f"{MARK}<script>window.hacked=1</script>",
    f"{MARK}\"><img src=x onerror='window.hacked=1'>",
    f"{MARK}</script></style></title><svg onload=window.hacked=1>",
    f"{MARK}\x1b[31mred\x1b]0;title\x07\x9b2J\x00\x08",
    MARK + "x" * 10_000,
    f"{MARK}\u202egnp.exe\u2066\u200f\u05d0\u05d1\u05d2 \u0627\u0644\u0639\u0631\u0628\u064a\u0629",
    f"{MARK}{{{{ 7 * 7 }}}}{{% for x in y %}}${{7*7}}",
    f"{MARK}' + window.alert(1) + '\\u003cb\\u003e\u2028\u2029",
    f"{MARK}](javascript:window.hacked=1) `code` @everyone #1 | a | b |\n# heading",
    f"{MARK}&lt;b&gt;&amp;&#60;i&#62;",
)
FREE = {"str", "str | None", "dict[str, str]", "tuple[str, ...]", "tuple[str, ...] | None"}
KEPT = {"created_at"}


def hostile(value: Any, texts: Iterator[str] | None = None, *, keep: frozenset[str] = frozenset()) -> Any:
    """A copy of a dataclass in which each free text is a nasty one; fields of a fixed set of words and those in ``keep`` stay."""
    source = texts if texts is not None else cycle(TEXTS)
    changes = {}
    for field in dataclasses.fields(value):
        inner = getattr(value, field.name)
        if field.name in keep or field.name in KEPT:
            continue
        if isinstance(inner, str) and str(field.type) in FREE:
            changes[field.name] = next(source)
        elif isinstance(inner, dict) and all(isinstance(one, str) for one in inner.values()) and field.name != "missing":
            changes[field.name] = {f"{key} {next(source)}": next(source) for key in inner}
        elif isinstance(inner, dict) and field.name == "missing":
            changes[field.name] = {key: next(source) for key in inner}
        elif dataclasses.is_dataclass(inner):
            changes[field.name] = hostile(inner, source, keep=keep)
        elif isinstance(inner, tuple) and inner and isinstance(inner[0], str) and str(field.type) in FREE:
            changes[field.name] = tuple(next(source) for _ in inner)
        elif isinstance(inner, tuple) and inner and dataclasses.is_dataclass(inner[0]):
            changes[field.name] = tuple(hostile(one, source, keep=keep) for one in inner)
    return dataclasses.replace(value, **changes)
