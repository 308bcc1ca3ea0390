"""Finds the matrices that tools print of pairs of GPUs, however a terminal, a chat or a launcher has bent them.

``nvidia-smi topo -m`` and ``-p2p``, ``rocm-smi --showtopo`` and ``amd-smi topology`` all print a header of devices and a row for
each. Tabs, collapsed blanks, markdown bars, wrapped lines, cells run together and a header glued to the prompt are read. A cell is
kept only where its place is certain: the diagonal (``X``, or ``0`` on AMD) must stand where it belongs, and a row that lost a cell
keeps only the side of the diagonal whose count is right. Everything else is None, and the row says what is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from wiretax.probe.readers.pasted import BUS_ID
from wiretax.probe.readers.streams import Line, Stream

PATH_WORD = re.compile(r"PIX|PXB|PHB|NODE|SYS|SOC|NV\d{1,3}")
"""Cells of ``nvidia-smi topo -m``. SOC is what old drivers call SYS."""
P2P_WORD = re.compile(r"OK|CNS|GNS|TNS|NS|DR|U")
NVIDIA_WORD = re.compile(rf"X|{PATH_WORD.pattern}|{P2P_WORD.pattern}")
AMD_WORD = re.compile(
    r"SELF|XGMI|PCIE|UNKNOWN|TRUE|FALSE|ENABLED|DISABLED|N/A|\d{1,7}(?:[-,]\d{1,7})?|[A-Z]{1,4}(?:,[A-Z0-9]{1,4})+|[TF]", re.IGNORECASE
)

_DEVICE = rf"GPU\d{{1,3}}|{BUS_ID}"
_FIRST_DEVICE = re.compile(rf"(?:^|(?<=[\s|`]))(?:{_DEVICE})(?=[\s|]|$|GPU)")
_DEVICE_NAME = re.compile(rf"(?:{_DEVICE})")
_NIC_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.:-]{1,40}")
_EXTRA = re.compile(r"CPU\s{0,40}Affinity|NUMA\s{0,40}Affinity|GPU\s{0,40}NUMA\s{0,40}ID|Mem(?:ory)?\s{0,40}Affinity", re.IGNORECASE)
_AFFINITY_TOKEN = re.compile(r"[0-9a-fA-F,-]+|N/A", re.IGNORECASE)
_LEGEND = re.compile(r"\s*(?:X|SYS|NODE|PHB|PXB|PIX|PSB|NV#|SOC|C2C|OK|CNS|GNS|TNS|NS|DR|U)\s{1,8}= \S")
_NIC_LEGEND = re.compile(r"\s*(NIC\d{1,3})\s?:\s?(\S{1,60})\s*$")
_COMMAND = re.compile(r"\btopo(?:logy)?\s+-|--showtopo|amd-smi topo")
_LOOK_AHEAD = 60
"""Lines of other output that may stand between two rows of one matrix."""
_LONGEST_ROW = 16_000
"""Characters; 72 GPUs and 36 NICs fill 1,500."""


@dataclass(slots=True)
class Row:
    """One row: a cell for each column of the header (None where it cannot be known), and the texts right of them."""

    label: str
    line: int
    cells: list[str | None]
    rest: list[str]
    rest_is_positional: bool
    """True where empty cells were kept (tabs, markdown), so that ``rest`` stands under its header."""
    trouble: str | None = None


@dataclass(slots=True)
class Matrix:
    """A matrix with the numbers of all lines that belong to it."""

    header_line: int
    before: str
    """What stood before the header on its line (a prompt with the command), or the last non-empty line above it."""
    columns: list[str]
    extras: list[str]
    rows: dict[str, Row] = field(default_factory=dict)
    nic_names: dict[str, str] = field(default_factory=dict)
    legend: str = ""
    lines: set[int] = field(default_factory=set)
    damaged: list[tuple[int, str]] = field(default_factory=list)

    def gpu_columns(self) -> list[str]:
        """The columns that are GPUs, in order."""
        return [name for name in self.columns if _DEVICE_NAME.fullmatch(name)]

    def says_p2p(self) -> bool:
        """Whether an NVIDIA matrix is one of ``topo -p2p``: by its cells; a single GPU has only its ``X``, so by command or legend."""
        cells = [cell for row in self.rows.values() for cell in row.cells if cell and cell != "X"]
        if not cells:
            return "p2p" in self.before.lower() or "Status Ok" in self.legend
        return sum(P2P_WORD.fullmatch(cell) is not None for cell in cells) * 2 > len(cells)

    def cell(self, row: str, column: str) -> str | None:
        """The cell, or None where it was not shown or cannot be known."""
        found = self.rows.get(row)
        return found.cells[self.columns.index(column)] if found else None


def matrices(stream: Stream, word: re.Pattern[str], is_diagonal: Callable[[str], bool]) -> list[Matrix]:
    """All matrices of a stream whose cells match ``word``.

    Args:
        stream: the lines.
        word: matches one cell, whole.
        is_diagonal: whether a cell is the sign for a device with itself.
    """
    found: list[Matrix] = []
    lines = stream.lines
    position = 0
    while position < len(lines):
        matrix = _header(lines, position, word)
        if matrix is None:
            position += 1
            continue
        end = _rows(matrix, lines, position + 1, word, is_diagonal)
        if matrix.rows:
            found.append(matrix)
        position = max(end, position + 1)
    return found


def _header(lines: tuple[Line, ...], position: int, word: re.Pattern[str]) -> Matrix | None:
    text = lines[position].text
    if ("GPU" not in text and (word is NVIDIA_WORD or ":" not in text)) or len(text) > _LONGEST_ROW:
        return None
    start = _FIRST_DEVICE.search(text)
    if start is None:
        return None
    body = text[start.start() :]
    extra = _EXTRA.search(body)
    extras = [" ".join(part.split()).title() for part in _EXTRA.findall(body)]
    names: list[str] = []
    for token in re.split(r"[\s|]+", body[: extra.start()] if extra else body):
        if not token:
            continue
        glued = _DEVICE_NAME.findall(token)
        if glued and "".join(glued) == token:
            names.extend(glued)
        elif names and _NIC_NAME.fullmatch(token) and not word.fullmatch(token):
            names.append(token)
        else:
            return None
    if not names or len(set(names)) != len(names):
        return None
    if len(names) == 1 and not extras and not _is_row_of(names[0], lines, position + 1, word):
        return None
    before = text[: start.start()].strip(" \t|")
    used = {lines[position].number}
    if not before:
        above = next((line for line in reversed(lines[max(0, position - 3) : position]) if line.text.strip()), None)
        if above is not None and len(above.text) <= _LONGEST_ROW:
            before = above.text.strip()
            if _COMMAND.search(before):
                used.add(above.number)
    return Matrix(lines[position].number, before, names, extras, lines=used)


def _is_row_of(label: str, lines: tuple[Line, ...], position: int, word: re.Pattern[str]) -> bool:
    following = next((line.text for line in lines[position : position + 3] if line.text.strip()), "")
    tokens = following.replace("|", " ").split()
    return len(tokens) >= 2 and tokens[0] == label and word.fullmatch(tokens[1]) is not None


def _rows(matrix: Matrix, lines: tuple[Line, ...], start: int, word: re.Pattern[str], is_diagonal: Callable[[str], bool]) -> int:
    """Reads the rows under a header and returns the position behind the matrix and its legend."""
    labels = set(matrix.columns)
    strangers = 0
    last: tuple[str, Line, list[str]] | None = None  # label, line, its body and the bodies of wrapped lines
    end = start
    in_legend = False

    def close() -> None:
        nonlocal last
        if last is not None:
            label, line, bodies = last
            row = _row(matrix, label, line.number, bodies, word, is_diagonal)
            if row is not None:
                if label in matrix.rows and matrix.rows[label].cells != row.cells:
                    row.trouble = row.trouble or f"a second row {label} differs from the first"
                    row.cells = [a if a == b else None for a, b in zip(row.cells, matrix.rows[label].cells, strict=True)]
                matrix.rows[label] = row
            last = None

    for position in range(start, len(lines)):
        line = lines[position]
        text = line.text
        if not text.strip() or set(text.strip()) <= set("|-:+= `"):
            matrix.lines.add(line.number)
            continue
        if _LEGEND.match(text) or text.strip() in ("Legend:", "NIC Legend:"):
            in_legend = True
            matrix.legend += text + "\n"
        elif in_legend and (nic := _NIC_LEGEND.match(text)):
            matrix.nic_names[nic.group(1)] = nic.group(2)
        elif not in_legend and (body := _body_of(labels, text, word)) is not None:
            close()
            last = (body[0], line, [body[1]])
        elif not in_legend and (stranger := _row_without_column(text, word)) is not None:
            close()
            matrix.damaged.append((line.number, f"row {stranger} has no column in the header, so the matrix is not whole"))
        elif last is not None and len(matrix.columns) > 6 and _is_continuation(text, word):
            last[2].append(text)
        elif not matrix.rows and last is None and (more := _more_columns(text, word)) is not None:
            matrix.columns.extend(name for name in more[0] if name not in labels)
            labels.update(more[0])
            matrix.extras.extend(more[1])
        else:
            strangers += 1
            complete = set(matrix.rows) | ({last[0]} if last else set()) >= labels
            if in_legend or complete or strangers > _LOOK_AHEAD or _header(lines, position, word) is not None:
                break
            continue
        matrix.lines.add(line.number)
        end = position + 1
    close()
    return end


def _body_of(labels: set[str], text: str, word: re.Pattern[str]) -> tuple[str, str] | None:
    """(label, what follows it) where the line is a row: one of the labels, then a cell."""
    if len(text) > _LONGEST_ROW:
        return None
    for match in re.finditer(r"[^\s|`]+", text):
        token = match.group()
        if token not in labels:
            if match.start() > 200:
                return None
            continue
        rest = text[match.end() :]
        first = rest.replace("|", " ").split(maxsplit=1)
        return (token, rest) if first and _is_cell_like(first[0], word) else None
    return None


def _row_without_column(text: str, word: re.Pattern[str]) -> str | None:
    """The GPU of a line that is a row, although the header does not name it."""
    match = re.match(r"\s{0,12}(GPU\d{1,3})[\s|]{1,20}(\S{1,12})(?=[\s|]|$)", text)
    return match.group(1) if match and _is_cell_like(match.group(2), word) else None


def _is_cell_like(token: str, word: re.Pattern[str]) -> bool:
    """Whether a token is a cell or a run of cells; ``XGMI`` is no ``X``."""
    if word.fullmatch(token):
        return True
    return word is NVIDIA_WORD and (bool(_split_run(token, word)[0]) or re.match(r"NV\d{1,3}[\d,-]", token) is not None)


def _is_continuation(text: str, word: re.Pattern[str]) -> bool:
    return len(text) <= _LONGEST_ROW and all(word.match(token) or _AFFINITY_TOKEN.fullmatch(token) for token in text.split())


def _more_columns(text: str, word: re.Pattern[str]) -> tuple[list[str], list[str]] | None:
    """Names and extras of a header that a terminal wrapped."""
    if len(text) > _LONGEST_ROW:
        return None
    extra = _EXTRA.search(text)
    names = text[: extra.start()].split() if extra else text.split()
    if not all((_DEVICE_NAME.fullmatch(n) or re.fullmatch(r"NIC\d{1,3}|mlx\w{1,20}", n)) and not word.fullmatch(n) for n in names):
        return None
    return names, [" ".join(part.split()).title() for part in _EXTRA.findall(text)]


def _row(
    matrix: Matrix, label: str, number: int, bodies: list[str], word: re.Pattern[str], is_diagonal: Callable[[str], bool]
) -> Row | None:
    """The row read in the ways a paste can bend it, the strictest first."""
    num_columns = len(matrix.columns)
    place = matrix.columns.index(label)
    body = bodies[0]
    if len(bodies) == 1:
        for separator in ("|", "\t"):
            if separator not in body:
                continue
            fields = [part.strip() for part in body.strip(" ").removeprefix(separator).split(separator)]
            cells, rest = fields[:num_columns], fields[num_columns:]
            if len(cells) == num_columns and all(word.fullmatch(cell) for cell in cells) and is_diagonal(cells[place]):
                return Row(label, number, list(cells), rest, True)
    best: Row | None = None
    for joined in dict.fromkeys((" ".join(bodies), "".join(bodies))):
        row = _row_of_tokens(label, number, joined.replace("|", " ").split(), num_columns, place, word, is_diagonal)
        if row.trouble is None or (best is None and row.cells):
            best = row
        if row.trouble is None:
            break
    return best


def _row_of_tokens(
    label: str, number: int, tokens: list[str], num_columns: int, place: int, word: re.Pattern[str], is_diagonal: Callable[[str], bool]
) -> Row:
    cells: list[str] = []
    rest: list[str] = []
    run_together: list[str] = []
    for index, token in enumerate(tokens):
        if len(cells) >= num_columns:
            rest = tokens[index:]
            break
        if word.fullmatch(token):
            cells.append(token)
            continue
        parts, remainder = _split_run(token, word)
        if not parts:
            rest = tokens[index:]
            break
        run_together.append(token)
        cells.extend(parts)
        if remainder:
            rest = [remainder, *tokens[index + 1 :]]
            break
    surplus = len(cells) > num_columns or (rest and word is NVIDIA_WORD and any(word.fullmatch(token) for token in rest))
    diagonal = [index for index, cell in enumerate(cells) if is_diagonal(cell)]
    if len(cells) == num_columns and not surplus and diagonal_ok(diagonal, place, word):
        trouble = f"cells run together ({', '.join(run_together)}), read by the words they are made of" if run_together else None
        return Row(label, number, list(cells), rest, False, trouble)
    certain: list[str | None] = [None] * num_columns
    if word is not AMD_WORD and len(diagonal) == 1:
        if diagonal[0] == place:
            certain[: place + 1] = cells[: place + 1]
        right = cells[diagonal[0] :]
        if len(right) == num_columns - place and not surplus:
            certain[place:] = right
    have = f"{len(cells)} of {num_columns} cells" if not surplus else f"more than {num_columns} cells"
    where = "" if not diagonal or diagonal[0] == place else f", and the sign for the device itself stands in column {diagonal[0]}"
    return Row(label, number, certain, [], False, f"row {label} shows {have}{where}: which are missing cannot be told")


def diagonal_ok(diagonal: list[int], place: int, word: re.Pattern[str]) -> bool:
    """Whether the sign for "itself" stands in its place and, in NVIDIA's tables, nowhere else."""
    return place in diagonal if word is AMD_WORD else diagonal == [place]


def _split_run(token: str, word: re.Pattern[str]) -> tuple[list[str], str]:
    """Splits ``NODENODE`` or ``SYS56-111`` into cells and a remainder; nothing where more than one reading exists (``NV180-23``)."""
    if word is not NVIDIA_WORD:
        return [], token
    parts: list[str] = []
    position = 0
    while position < len(token) and (match := word.match(token, position)):
        parts.append(match.group())
        position = match.end()
    remainder = token[position:]
    if remainder and (not _AFFINITY_TOKEN.fullmatch(remainder) or (parts and parts[-1].startswith("NV"))):
        return [], token
    return parts, remainder
