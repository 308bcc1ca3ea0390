"""Sentences that say that the number of steps did not change with the number of GPUs.

Many who find several GPUs "no faster" compare steps: a loader without a distributed sampler, or a schedule that counts iterations,
gives every GPU count the same steps, so each step (and each "epoch") does more work. The time of such a step says nothing of the wire.

Observations:
    ``training.steps_kept``: ``text``.
"""

from __future__ import annotations

import re

from wiretax.probe.readers import pasted
from wiretax.probe.readers.piece import Piece, Text
from wiretax.probe.readers.streams import MOST_PROSE, Stream, mentions, streams

FORMAT = "notes on steps"
_STEPS = (
    r"(?:iterations?|iters?|steps|batches|(?:total|max|num)_(?:iters?|steps|batches)|steps_per_epoch|"
    r"len ?\(? ?(?:train_?)?(?:data_?)?loader ?\)?)(?!\w)"
)
_KEPT = (
    r"(?:(?:is|are|was|were|stays?|stayed|remains?|remained|keeps?) (?:always |still |also |exactly |all )?(?:the )?"
    r"(?:same|unchanged|fixed|constant)"
    r"|(?:the )?same (?:number|amount|count) of|same (?:steps|iterations)|(?:does|do|did|is|are|was|were)(?: not|n't) (?:\w{2,12} )?"
    r"(?:decreas|chang|reduc|divid|halv|shr[iu]nk|scal|drop|split|go down)\w{0,5}|(?:not|n't) (?:decrease|change|reduce|halve|drop)\b"
    r"|regardless of (?:the )?(?:number of )?(?:GPU|gpu))"
)
_SAID = (
    re.compile(rf"\b{_STEPS}[^.!?;]{{0,60}}?{_KEPT}", re.IGNORECASE),
    re.compile(
        rf"(?:same (?:number|amount|count) of|(?:not|n't) (?:decrease|change|reduce|halve)\w? the (?:number of )?)"
        rf"[^.!?;]{{0,30}}?\b{_STEPS}",
        re.IGNORECASE,
    ),
    re.compile(
        r"\b(?:set|fix(?:ed)?|specif\w{1,4}) (?:the )?(?:total )?(?:number|amount) of (?:training )?(?:iterations|steps)\b", re.IGNORECASE
    ),
)
_SEVERAL = re.compile(
    r"\b(?:multi(?:ple|-)? ?GPUs?|multi-?gpu|(?:two|three|four|eight|several|more|all|[2-9]|1[0-6]) ?x? ?(?:GPUs?|cards?)|GPUs|DDP|"
    r"distributed|graphics cards)\b",
    re.IGNORECASE,
)
_HINTS = ("iter", "step", "batches", "loader", "Iter", "Step")


def read(text: Text) -> tuple[Piece, ...]:
    """The notes of each stream, as one piece a stream."""
    return tuple(piece for stream in streams(text) if (piece := _piece(text.source, stream)) is not None)


def _piece(source: str, stream: Stream) -> Piece | None:
    notes = pasted.Notes(source, stream.lines)
    lines: set[int] = set()
    several = False
    prose = 0
    for line in stream.lines:
        text = line.text
        if len(text) > 1000 or not text.strip():
            continue
        prose += 1
        if prose > MOST_PROSE:
            break
        several = several or _SEVERAL.search(text) is not None
        if mentions(text, _HINTS) and any(pattern.search(text) for pattern in _SAID):
            lines.add(line.number)
            notes.add(line.number, "training.steps_kept", text=text.strip(" #")[:160])
    # Without several GPUs in the text, the same number of steps is nothing to speak of.
    if not lines or not several:
        return None
    return Piece(source=source, format=FORMAT, first_line=min(lines), observations=notes.observations(), understood=frozenset(lines))
