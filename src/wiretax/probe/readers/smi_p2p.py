"""Reads ``nvidia-smi topo -p2p`` matrices, one of five questions each.

The answer (OK, CNS, GNS, TNS, NS, DR, U) means something only together with the question (r, w, n, a, p). Where the command is
not in the text, the codes are kept as observations and no question is guessed.

Observations:
    ``p2p.status``: one a pair where the question is not known; ``source_gpu``, ``target_gpu``, ``code``.
    ``p2p.matrix``: one a matrix; ``asked`` (``read``, ``write``, ``read+write``, ``nvlink``, ``atomics``, ``pci`` or ``unknown``),
    ``codes`` (the codes seen off the diagonal, joined by a blank), ``num_gpus``.
"""

from __future__ import annotations

import re

from wiretax.model.machine import Gpu, GpuPair, P2pStatus
from wiretax.probe.readers import pasted
from wiretax.probe.readers.matrix import NVIDIA_WORD, P2P_WORD, Matrix, matrices
from wiretax.probe.readers.piece import Piece, Text
from wiretax.probe.readers.streams import Stream, streams

FORMAT = "nvidia-smi topo -p2p"
_QUESTIONS = {"r": "read", "w": "write", "n": "nvlink", "a": "atomics", "p": "pci"}
_COMMAND = re.compile(r"-p2p\s*=?\s*['\"]?([rwnap]{1,5})\b", re.IGNORECASE)


def read(text: Text) -> tuple[Piece, ...]:
    """All P2P matrices of a text, one piece each."""
    return tuple(
        _piece(text.source, matrix, stream)
        for stream in streams(text)
        for matrix in matrices(stream, NVIDIA_WORD, lambda cell: cell == "X")
        if matrix.says_p2p()
    )


def _piece(source: str, matrix: Matrix, stream: Stream) -> Piece:
    notes = pasted.Notes(source, stream.lines)
    asked_by = _COMMAND.search(matrix.before)
    asked = list(dict.fromkeys(_QUESTIONS[letter] for letter in asked_by.group(1).lower())) if asked_by else []
    damaged: list[tuple[int, str]] = list(matrix.damaged)
    for row in matrix.rows.values():
        if row.trouble:
            damaged.append((row.line, row.trouble))
        for index, cell in enumerate(row.cells):
            if cell and cell != "X" and not P2P_WORD.fullmatch(cell):
                damaged.append((row.line, f"row {row.label} has the cell {cell}, which is no P2P status"))
                row.cells[index] = None
    names = matrix.gpu_columns()
    absent = [name for name in names if name not in matrix.rows]
    if absent:
        damaged.append((matrix.header_line, f"the rows {', '.join(absent)} are missing"))

    pairs: list[GpuPair] = []
    codes: dict[str, None] = {}
    for first in names:
        for second in names:
            if first == second:
                continue
            code = matrix.cell(first, second)
            source_gpu, target_gpu = int(first[3:]), int(second[3:])
            if code is None:
                status = P2pStatus(missing=dict.fromkeys(asked, "the row is damaged or missing in the pasted matrix"))
            elif asked:
                status = P2pStatus(**dict.fromkeys(asked, code))  # type: ignore[arg-type]
            else:
                reason = f"a matrix says {code}, but not which of r, w, n, a, p was asked"
                status = P2pStatus(missing=dict.fromkeys(_QUESTIONS.values(), reason))
                notes.add(matrix.rows[first].line, "p2p.status", source_gpu=source_gpu, target_gpu=target_gpu, code=code)
            if code is not None:
                codes[code] = None
            pairs.append(GpuPair(source_gpu=source_gpu, target_gpu=target_gpu, p2p=status))
    notes.add(matrix.header_line, "p2p.matrix", asked="+".join(asked) or "unknown", codes=" ".join(codes), num_gpus=len(names))
    return Piece(
        source=source,
        format=f"{FORMAT} {asked_by.group(1).lower()}" if asked_by else FORMAT,
        first_line=matrix.header_line,
        machine=pasted.machine(FORMAT, hostname=stream.host, gpus=[Gpu(index=int(name[3:])) for name in names], pairs=pairs),
        observations=notes.observations(),
        understood=frozenset(matrix.lines),
        damaged=tuple(sorted(damaged)),
    )
