"""A run as Markdown for an issue thread: the verdict, the findings, the figures, and the terminal's text folded below."""

from __future__ import annotations

import re
from collections.abc import Sequence

from wiretax.model.comparison import Comparison
from wiretax.model.run import Run
from wiretax.show.page import Page, page_of
from wiretax.show.plain import plain
from wiretax.show.series import Labelled, best_points, pair_rates, wire_points, wires_of
from wiretax.show.terminal import as_text
from wiretax.units import gigabytes_per_second, size

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~!@&])")
SIZES = (8, 2**10, 2**16, 2**20, 2**24, 2**28, 2**30)
"""Message sizes of the short table."""


def as_markdown(run: Run, *, removed: Sequence[str] = ()) -> str:
    """GitHub-flavoured Markdown. Nothing in the run can act as markup, mention anybody or open a link.

    Args:
        run: any run; it is cleaned here.
        removed: what redaction took out, said in the last line.
    """
    clean = plain(run)
    page = page_of(clean, removed)
    parts = [f"## {escaped(page.title)}: {escaped(page.decision)}" + (f", {page.keep.lower()}" if page.keep else "")]
    parts += [escaped(page.sentence), f"_{escaped(page.subtitle)}_"]
    if page.banner:
        parts.append(f"> {escaped(page.banner)}")
    parts += [_figures(page), _wires(clean), _pairs(clean), *_findings(page)]
    if page.not_measured:
        parts.append("**Not measured**\n" + "\n".join(f"- {escaped(line)}" for line in page.not_measured))
    text = as_text(run, width=100)
    fence = "`" * max(3, 1 + max((len(found) for found in re.findall(r"`+", text)), default=0))
    parts.append(f"<details><summary>the whole run</summary>\n\n{fence}text\n{text.rstrip()}\n{fence}\n\n</details>")
    last = f"Made by {escaped(page.tool)}, run `{_code(page.run_id)}`."
    parts.append(last + (f" Removed before sharing: {escaped(', '.join(removed))}." if removed else ""))
    return "\n\n".join(part for part in parts if part) + "\n"


def comparison_as_markdown(comparison: Comparison, most: int = 40) -> str:
    """A comparison as Markdown: the sentence, what differs, what changed around it.

    Args:
        comparison: cleaned here.
        most: lines of figures.
    """
    clean = plain(comparison)
    lines = [f"## {' against '.join(escaped(side.label) for side in reversed(clean.sides))}", "", escaped(clean.sentence), ""]
    lines += ["| metric | run | " + escaped(clean.sides[0].label) + " | this run | change | |", "|---|---|---:|---:|---:|---|"]
    for d in clean.differences[:most]:
        change = "" if d.ratio is None else f"{(d.ratio - 1) * 100:+.1f} %"
        label = clean.sides[d.side].label
        lines.append(f"| `{_code(d.metric)}` | {escaped(label)} | {d.base:.4g} | {d.value:.4g} | {change} | {d.outcome} |")
    if len(clean.differences) > most:
        lines.append(f"\n{len(clean.differences) - most} more figures, with --json")
    for fact in clean.changes:
        values = ", ".join("unknown" if value is None else escaped(value) for value in fact.values)
        lines.append(f"\n- changed: **{escaped(fact.subject)}**: {values}")
    return "\n".join(lines) + "\n"


def escaped(text: str) -> str:
    """Text in which no character means anything to Markdown or HTML; a mention mentions nobody and an address is no link."""
    return _SPECIAL.sub(r"\\\1", text).replace("://", ":\u200b//").replace("www.", "www\u200b.")


def _code(text: str) -> str:
    return text.replace("`", "'")


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "| " + " | ".join(headings) + " |\n|" + "---|" * len(headings)
    return head + "".join("\n| " + " | ".join(row) + " |" for row in rows)


def _figures(page: Page) -> str:
    if not page.tiles:
        return ""
    rows = [(escaped(t.label), f"**{t.value} {escaped(t.unit)}**", escaped(t.note)) for t in page.tiles]
    rows += [(f"wire tax over {escaped(t.wire)}", f"**{t.text}**", escaped(t.note)) for t in page.taxes]
    return _table(("", "", ""), rows)


def _wires(run: Run) -> str:
    """Bus bandwidth of all-reduce at a few sizes, a column a wire."""
    wires = wires_of(run)
    points = [p for p in best_points(wire_points([Labelled("", run)])) if p.operation == "all_reduce"]
    if not points:
        return ""
    most = max(p.world_size for p in points)
    cells = {(p.num_bytes, p.wire): p for p in points if p.world_size == most}
    rows = []
    for num_bytes in SIZES:
        if not any((num_bytes, wire) in cells for wire in wires):
            continue
        found = [cells.get((num_bytes, wire)) for wire in wires]
        rows.append((size(num_bytes), *(gigabytes_per_second(p.busbw) if p else "" for p in found)))
    return f"**all-reduce on {most} ranks, busbw in GB/s**\n\n" + _table(("size", *map(escaped, wires)), rows)


def _pairs(run: Run) -> str:
    """Measured copies as a matrix, up to 8 GPUs."""
    rates = pair_rates([Labelled("", run)])
    indices = sorted({r.source for r in rates})
    if not any(r.measured for r in rates) or len(indices) > 8:
        return ""
    cells = {(r.source, r.target): r for r in rates}
    rows = []
    for a in indices:
        own = [cells.get((a, b)) for b in indices]
        rows.append(
            (
                f"GPU{a}",
                *("" if r is None or not r.measured else f"{gigabytes_per_second(r.measured)} {escaped(r.path or '')}" for r in own),
            )
        )
    return "**copies from row to column, GB/s**\n\n" + _table(("", *(f"GPU{b}" for b in indices)), rows)


def _findings(page: Page) -> list[str]:
    parts = []
    for finding in page.findings:
        lines = [f"### {finding.severity}: {escaped(finding.title)}", f"`{_code(finding.code)}`, {finding.confidence}"]
        lines += [f"- seen: {escaped(evidence.text)}" for evidence in finding.evidence]
        lines += [f"- effect: {escaped(finding.effect)}"] if finding.effect else []
        lines += [f"- what to do: {escaped(finding.remedy)}"] if finding.remedy else []
        lines += [f"- to disprove it: `{_code(finding.confirm)}`"] if finding.confirm else []
        parts.append(lines[0] + "\n\n" + "\n".join(lines[1:]))
    return parts
