"""Chart specifications for a page: data as columns instead of rows, compressed; ``page.js`` unpacks it."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Sequence
from typing import Any


def packed(specs: Sequence[tuple[str, dict[str, Any]]]) -> str:
    """Named specifications as JSON, compressed, in base64: no character of it means anything to markup.

    Args:
        specs: name and Vega-Lite.
    """
    text = json.dumps([{"name": name, "spec": _pack(spec)} for name, spec in specs], separators=(",", ":"))
    return base64.b64encode(gzip.compress(text.encode("utf-8"), compresslevel=6, mtime=0)).decode("ascii")


def _pack(spec: Any) -> Any:
    if isinstance(spec, dict):
        return {key: _columns(value) if key == "values" and _is_table(value) else _pack(value) for key, value in spec.items()}
    if isinstance(spec, list):
        return [_pack(inner) for inner in spec]
    return spec


def _is_table(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(row, dict) and row.keys() == value[0].keys() for row in value)


def _columns(values: list[dict[str, Any]]) -> dict[str, Any]:
    """``{"columns": {name: [...]}}``; a column of few different words is numbers into a list of them."""
    return {"columns": {key: _column([row[key] for row in values]) for key in values[0]}}


def _column(values: list[Any]) -> Any:
    words = list(dict.fromkeys(values))
    if all(isinstance(word, str) for word in words) and len(words) <= max(1, len(values) // 3):
        index = {word: k for k, word in enumerate(words)}
        return {"words": words, "at": [index[value] for value in values]}
    return values
