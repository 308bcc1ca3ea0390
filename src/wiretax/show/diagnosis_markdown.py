"""A diagnosis as Markdown, ready to paste into an issue thread: the answer first, the evidence folded away.

Nothing in the texts can act as markup, mention anybody, open a link or end a code block.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import replace

from rich.console import Console

from wiretax.model.finding import Evidence, Finding
from wiretax.model.machine import Machine
from wiretax.model.run import Run
from wiretax.show.diagnosis import machine_words, machines_of, notes_of
from wiretax.show.markdown import escaped
from wiretax.show.plain import ASCII, plain
from wiretax.show.topology import topology
from wiretax.show.topology_tree import tree

MOST_INFO = 6
"""Notes at ``info`` beside graver findings; the rest is counted."""

_WIDTH = 100


def diagnosis_as_markdown(run: Run, *, removed: Sequence[str] = ()) -> str:
    """GitHub-flavoured Markdown of a diagnosis.

    Args:
        run: from ``wiretax diagnose``; it is cleaned here.
        removed: what redaction took out, said in the last line.
    """
    clean = plain(run)
    grave = [finding for finding in clean.findings if finding.severity != "info"]
    notes = [finding for finding in clean.findings if finding.severity == "info"]
    parts = [f"**{_prose(clean.verdict.sentence)}**"] if clean.verdict is not None else []
    shown = grave or notes[:1]
    parts += [_finding(finding) for finding in shown]
    rest = [finding for finding in notes if finding not in shown]
    if rest:
        parts.append("**Also**\n\n" + "\n".join(_in_short(finding) for finding in rest[:MOST_INFO]))
    if len(rest) > MOST_INFO:
        parts.append(f"and {len(rest) - MOST_INFO} more notes.")
    parts += [drawn for label, machine, single in machines_of(clean) if (drawn := _machine(clean, label, machine, single))]
    unread = notes_of(clean)
    if unread:
        lines = "\n".join(line for line, _ in unread)
        count = sum(note.count for note in clean.input_notes)
        parts.append(_folded(f"Not understood ({count} line{'' if count == 1 else 's'})", _fenced(lines)))
    last = f"Made by wiretax {escaped(clean.tool.version)} from pasted text alone; nothing was measured."
    parts.append(f"<sub>{last}" + (f" Removed before sharing: {escaped(', '.join(removed))}." if removed else "") + "</sub>")
    return "\n\n".join(parts) + "\n"


def _finding(finding: Finding) -> str:
    lines = [
        f"### {finding.severity}: {_prose(finding.title)}",
        f"`{_code(finding.code)}`, {finding.confidence}. {_prose(finding.effect)}".rstrip(),
        f"**What to do.** {_prose(finding.remedy)}",
    ]
    if finding.confirm:
        lines.append(f"**What would prove this wrong.** {_span(finding.confirm)}")
    if finding.evidence:
        lines.append(_folded("What it rests on", _fenced("\n".join(_where(evidence) for evidence in finding.evidence))))
    return "\n\n".join(lines)


def _in_short(finding: Finding) -> str:
    return f"- {_prose(finding.title)} (`{_code(finding.code)}`, {finding.confidence}). {_prose(finding.remedy)}"


def _where(evidence: Evidence) -> str:
    if evidence.source.partition(".")[0] in ("machine", "measurements"):
        return evidence.text  # of the joined texts; the lines behind it follow
    place = evidence.source if evidence.line is None else f"{evidence.source}:{evidence.line}"
    return f"{place}: {evidence.text}"


def _machine(run: Run, label: str, machine: Machine, single: bool) -> str:
    """The picture and the pair table as the terminal shows them."""
    if len(machine.gpus) < 2:
        return ""
    page = io.StringIO()
    console = Console(file=page, width=_WIDTH, color_system=None, force_terminal=False, no_color=True)
    copies = run.measurements if single else replace(run.measurements, copies=(), peer_truth=())
    of_it = replace(run, machine=machine, measurements=copies)
    for part in (*tree(machine, ASCII), "", *topology(of_it, _WIDTH, ASCII)):
        console.print(part, markup=False, highlight=False, emoji=False)
    drawing = re.sub(r"[ ]+$", "", page.getvalue(), flags=re.MULTILINE).strip("\n")
    return f"**{_prose(label)}**: {_prose(machine_words(machine, ASCII))}\n\n{_fenced(drawing)}"


def _prose(text: str) -> str:
    """Our sentences put commands between backticks; everything else is made harmless."""
    pieces = text.split("`")
    if len(pieces) % 2 == 0:
        return escaped(text)
    return "".join(_span(piece) if place % 2 else escaped(piece) for place, piece in enumerate(pieces))


def _span(text: str) -> str:
    """A code span; its content cannot end it."""
    inner = _code(text).strip()
    return f"`{inner}`" if inner else ""


def _code(text: str) -> str:
    return text.replace("`", "'").replace("\n", " ")


def _fenced(text: str) -> str:
    """A code block whose fence is longer than any in the text."""
    fence = "`" * max(3, 1 + max((len(found) for found in re.findall(r"`+", text)), default=0))
    return f"{fence}text\n{text}\n{fence}"


def _folded(summary: str, body: str) -> str:
    return f"<details><summary>{summary}</summary>\n\n{body}\n\n</details>"
