"""Offers in files that people write: TOML, CSV or JSON, and the price list that comes with wiretax. Errors name file, line and key."""

from __future__ import annotations

import csv
import io
import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from wiretax.data.prices import FILE, published_text
from wiretax.errors import BadInput
from wiretax.plan.offers import Offer, Row, read_offers
from wiretax.store.folder import read_bytes

COMMON = ("currency", "seen", "source", "illustrative")
"""Keys that may stand once at the top of a file for all its offers."""

MOST_BYTES = 64 * 2**20
"""A list of a hundred thousand offers has about 20 MB."""


def load_offers(path: Path, today: date) -> tuple[Offer, ...]:
    """The offers in a file.

    Args:
        path: ``.toml`` with ``[[offer]]`` tables, ``.csv`` with the same keys as headings, or ``.json`` with a list of them.
        today: for dates.

    Raises:
        BadInput: unreadable, damaged, or an offer that cannot be one; with file, line and key.
    """
    data = read_bytes(path)
    if len(data) > MOST_BYTES:
        raise BadInput(f"{path} has {len(data)} bytes, too many for a list of offers.")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: not UTF-8 text (byte {error.start}).", do="Save the file as UTF-8.") from None
    readers = {".toml": _toml, ".csv": _csv, ".json": _json}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise BadInput(f"{path} is no list of offers by its name.", do=f"Give a file that ends in {', '.join(readers)}.")
    rows, common = reader(text, str(path))
    if not rows:
        raise BadInput(f"{path} holds no offer.", do="Write at least one [[offer]] with gpu, num_gpus, price and currency.")
    return read_offers(rows, common=common, today=today)


def published_offers(today: date) -> tuple[Offer, ...]:
    """The dated prices that come with wiretax."""
    rows, common = _toml(published_text(), FILE)
    return read_offers(rows, common=common, today=today)


def _toml(text: str, source: str) -> tuple[list[Row], dict[str, Any]]:
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"{source}: not valid TOML: {error}.", do=_near(text, str(error))) from None
    offers = document.pop("offer", document.pop("offers", []))
    _check_common(document, source)
    lines = _toml_lines(text)
    return _rows(offers, source, lines), document


def _near(text: str, message: str) -> str:
    """The key that stands at the place of the error, as people look for that."""
    match = re.search(r"line (\d+)", message)
    lines = text.rstrip().splitlines()
    # A text that is cut off is wrong where it ends.
    number = min(int(match[1]), len(lines)) if match is not None else len(lines)
    line = lines[number - 1].strip() if lines else ""
    key = re.match(r"([A-Za-z_][\w-]*)\s*=", line)
    where = f"the key {key[1]}" if key else repr(line[:60])
    return f"Look at line {number}: {where}."


def _toml_lines(text: str) -> list[dict[str, str]]:
    """For each ``[[offer]]`` the line of each of its keys."""
    found: list[dict[str, str]] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if re.match(r"\s*\[\[\s*offers?\s*\]\]", line):
            found.append({})
        elif found and (key := re.match(r"\s*[\"']?([A-Za-z_][\w-]*)[\"']?\s*=", line)):
            found[-1].setdefault(key[1], f"line {number}")
    return found


def _csv(text: str, source: str) -> tuple[list[Row], dict[str, Any]]:
    try:
        reader = csv.DictReader(io.StringIO(text, newline=""), dialect=_dialect(text), strict=True)
        headings = [(name or "").strip().lower() for name in reader.fieldnames or ()]
        reader.fieldnames = headings
        rows = []
        for number, values in enumerate(reader, start=1):
            if None in values:
                raise BadInput(
                    f"{source}: line {reader.line_num} has more cells than the heading.", do="Quote cells that hold the separator."
                )
            cells = {key: (value or "").strip() for key, value in values.items()}
            if any(cells.values()):
                rows.append(Row(cells, f"{source}, offer {number}", dict.fromkeys(cells, f"line {reader.line_num}")))
    except csv.Error as error:
        raise BadInput(f"{source}: line {reader.line_num}: not valid CSV: {error}.") from None
    return rows, {}


def _dialect(text: str) -> type[csv.Dialect]:
    """Semicolons where the heading has more of them than commas: what spreadsheets write where the comma is the decimal sign."""
    heading = text.partition("\n")[0]

    class Chosen(csv.excel):
        delimiter = max((",", ";", "\t"), key=heading.count)

    return Chosen


def _json(text: str, source: str) -> tuple[list[Row], dict[str, Any]]:
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise BadInput(f"{source}: line {error.lineno}, column {error.colno}: not valid JSON: {error.msg}.") from None
    except RecursionError:
        raise BadInput(f"{source}: nested too deeply for a list of offers.") from None
    if isinstance(document, list):
        return _rows(document, source, []), {}
    if not isinstance(document, dict):
        raise BadInput(f"{source} holds no list of offers.")
    offers = document.pop("offers", document.pop("offer", []))
    _check_common(document, source)
    return _rows(offers, source, []), document


def _rows(offers: Any, source: str, lines: Sequence[Mapping[str, str]]) -> list[Row]:
    if not isinstance(offers, list) or not all(isinstance(one, dict) for one in offers):
        raise BadInput(f"{source}: offer must be a list of tables.", do="Write [[offer]] above each one.")
    return [Row(one, f"{source}, offer {index + 1}", lines[index] if index < len(lines) else {}) for index, one in enumerate(offers)]


def _check_common(document: Mapping[str, Any], source: str) -> None:
    unknown = [key for key in document if key not in COMMON]
    if unknown:
        raise BadInput(
            f"{source}: {unknown[0]} is no key above the offers.", do=f"There may stand {', '.join(COMMON)}; the rest in [[offer]]."
        )
