"""A run as people read it: the machine, the pairs, the wires, the GPUs, what it means, what is wrong, and the verdict last."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from wiretax.model.finding import SEVERITIES, Finding, Verdict
from wiretax.model.measurement import HostLoad
from wiretax.model.run import Outcome, Run
from wiretax.show.facts import environment, heading
from wiretax.show.gpus import compute_table, facts_table, host_copy_line
from wiretax.show.plain import ASCII, UNICODE, Symbols, indented, listed, plain
from wiretax.show.plan import blocks as plan_blocks
from wiretax.show.plan import verdict as plan_verdict
from wiretax.show.prediction import predictions
from wiretax.show.profile import profiles
from wiretax.show.scaling import scaling
from wiretax.show.topology import topology
from wiretax.show.training import money_lines
from wiretax.show.wires import incident_words, ladder, ladder_caption, one_rank, operations, overlap_lines
from wiretax.units import percent

WIDEST = 116
"""Columns beyond which lines of prose are hard to read; only the pair matrix uses more."""

PREDICTED = {"predict": "predicted: the truth should lie between low and high 9 times out of 10"}

_TRAILING = re.compile(r"[ ]+$", re.MULTILINE)

SEVERITY_STYLE = {"info": "cyan", "warning": "yellow", "problem": "bold red", "critical": "bold red reverse"}


def render(run: Run, console: Console) -> None:
    """Prints a run of any kind, also a partial one.

    Nothing out of the document is taken as markup or escape code, every figure has its unit beside it or above it, and where
    the stream is not UTF-8 only characters it can express are written.

    Args:
        run: the document as saved; it is cleaned here.
        console: where to; its width, colour system and encoding are respected.
    """
    symbols = ASCII if console.options.ascii_only else UNICODE
    run = plain(run, console.encoding)
    width = min(console.width, WIDEST)
    for part in _parts(run, console.width, width, symbols):
        wide = isinstance(part, _Wide)
        console.print(
            part.part if isinstance(part, _Wide) else part,
            width=console.width if wide else width,
            markup=False,
            highlight=False,
            emoji=False,
        )


def as_text(run: Run, width: int = 80, encoding: str = "utf-8") -> str:
    """The same without colour, as a text to paste: no blanks at line ends.

    Args:
        run: the document as saved.
        width: columns.
        encoding: which characters may occur; ``ascii`` gives the fallback signs.
    """
    page = Page(encoding)
    render(run, Console(file=page, width=width, color_system=None, force_terminal=False, no_color=True))
    return without_trailing_blanks(page.getvalue())


def without_trailing_blanks(text: str) -> str:
    """The text without the blanks that rich writes to the end of wrapped lines."""
    return _TRAILING.sub("", text)


class Page(io.StringIO):
    """A text in memory that says of itself which encoding and terminal it stands for, which rich asks its stream."""

    def __init__(self, encoding: str, *, terminal: bool = False) -> None:
        """Args: encoding: of the stream it stands for. terminal: whether that is one."""
        super().__init__()
        self._encoding = encoding
        self._terminal = terminal

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """Of the stream this stands for."""
        return self._encoding

    def isatty(self) -> bool:
        """Whether that stream is a terminal."""
        return self._terminal


class _Wide:
    """Marks a part that may use the whole width of the terminal."""

    def __init__(self, part: RenderableType) -> None:
        self.part = part


def _parts(run: Run, console_width: int, width: int, symbols: Symbols) -> Iterable[RenderableType | _Wide]:
    yield from heading(run, symbols)
    if run.plan is not None:
        for block in plan_blocks(run.plan, width, symbols):
            yield from _section(block.title, block.caption, block.parts)
        yield from _section("Findings", "", _findings(run.findings, symbols))
        yield Text()
        yield plan_verdict(run.plan, symbols)
        return
    if run.command == "profile":
        yield from _section("Profile", "one micro-step on one device", profiles(run, symbols))
    elif run.command == "scale":
        yield from _section("Wires", ladder_caption(run), ladder(run, width, symbols))
    elif run.command != "predict":  # nothing was measured; the machine of its wire stands in the heading
        yield from _machine_parts(run, console_width, width, symbols)
    for title, caption, parts in scaling(run, symbols):
        yield from _section(title, caption, parts)
    if run.command != "scale":  # there they stand beside what was measured
        caption = PREDICTED.get(run.command, "predicted from the figures above, from low to high")
        yield from _section("Training", caption, predictions(run, symbols))
    yield from _section("Money", "", money_lines(run, symbols))
    yield from _section("Not measured", "", _not_measured(run, symbols))
    yield from _section("Findings", "", _findings(run.findings, symbols))
    if run.verdict is not None:
        yield Text()
        yield _verdict(run, run.verdict)


def _machine_parts(run: Run, console_width: int, width: int, symbols: Symbols) -> Iterable[RenderableType | _Wide]:
    yield from _section("Pairs", _pairs_caption(run), topology(run, console_width, symbols), wide=True)
    yield from _section("Wires", ladder_caption(run), ladder(run, width, symbols))
    yield from _section("Collectives", "on one rank", one_rank(run, symbols))
    yield from _section("Operations", "best busbw of each", operations(run, symbols))
    yield from _section("", "", overlap_lines(run))
    compute = compute_table(run, symbols)
    if compute:
        yield from _section("Compute", "under load", [*compute, *host_copy_line(run, symbols), *_host_load(run)])
    else:
        gpus = run.machine.gpus if run.machine is not None else ()
        yield from _section("GPUs", "as the driver describes them", facts_table(gpus, symbols))
    if run.command == "inspect" and run.machine is not None:
        yield from _section("Software and surroundings", "", environment(run.machine))


def _section(title: str, caption: str, parts: Sequence[RenderableType], *, wide: bool = False) -> Iterable[RenderableType | _Wide]:
    """A titled block, or nothing when it has no parts."""
    if not parts:
        return
    if title:
        yield Text()
        yield Text.assemble((title, "bold"), ("  " + caption if caption else "", "dim"))
    for part in parts:
        yield _Wide(part) if wide else part


def _pairs_caption(run: Run) -> str:
    copies = [c for c in run.measurements.copies if c.source_gpu is not None and c.target_gpu is not None]
    return "path the driver claims, GB/s of a copy one way" if copies else "path and P2P as the driver claims, nothing measured"


def _host_load(run: Run) -> list[RenderableType]:
    """One line on how busy the host was, the worst moment of all measurements."""
    measured = run.measurements
    found: list[HostLoad | None] = [c.host_load for c in measured.copies]
    found += [c.host_load for c in measured.collectives]
    found += [c.host_load for c in measured.compute]
    loads = [load for load in found if load is not None]
    others = [load.other_busy_fraction for load in loads if load.other_busy_fraction is not None]
    steals = [load.steal_fraction for load in loads if load.steal_fraction is not None]
    if not others and not steals:
        return []
    words = [
        *([f"{percent(max(others))} of the CPU time for other processes"] if others else []),
        *([f"{percent(max(steals))} stolen by other guests"] if steals else []),
    ]
    noisy = max([*others, *steals]) >= 0.1
    return [indented(Text("host: at worst " + ", ".join(words), style="yellow" if noisy else "dim"))]


def outcome_words(outcome: Outcome) -> str:
    """Why a run did not do all it set out to do, in a line."""
    words = {"out_of_budget": "the time was used up", "interrupted": "stopped by the user"}.get(outcome.status, "the run failed")
    if not outcome.reason:
        return words
    return f"{words}: {outcome.reason}" if outcome.status == "failed" else outcome.reason


def _not_measured(run: Run, symbols: Symbols) -> list[RenderableType]:
    """Incidents, and what was planned and left out, each with its reason."""
    lines: list[Text] = []
    outcome = run.outcome
    if outcome is not None and outcome.status != "complete":
        lines.append(Text(outcome_words(outcome), style="bold red" if outcome.status == "failed" else "yellow"))
    for incident in run.measurements.incidents:
        severe = incident.kind not in {"skipped", "out_of_time"}
        lines.append(
            Text.assemble(
                (f"{symbols.bad} " if severe else "", "bold red"),
                (f"{incident.stage}: ", "bold"),
                incident_words(incident),
            )
        )
    lines.extend(Text(item) for item in (outcome.not_measured if outcome is not None else ()))
    return [indented(line) for line in lines]


def _findings(findings: Sequence[Finding], symbols: Symbols) -> list[RenderableType]:
    ordered = sorted(findings, key=lambda finding: -SEVERITIES.index(finding.severity))
    parts: list[RenderableType] = []
    for position, finding in enumerate(ordered):
        if position:
            parts.append(Text())
        parts.append(finding_block(finding, symbols))
    return parts


def finding_block(finding: Finding, symbols: Symbols) -> RenderableType:
    """One finding: severity and title, code and confidence, the lines it rests on, effect, fix, and what would prove it wrong."""
    style = SEVERITY_STYLE[finding.severity]
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(width=13, no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row(Text(f"  {symbols.severity[finding.severity]} {finding.severity}", style=style), Text(finding.title, style="bold"))
    table.add_row(Text(), Text(f"{finding.code}, {finding.confidence}", style="dim"))
    label = "seen"
    for evidence in finding.evidence:
        where = evidence.source if evidence.line is None else f"{evidence.source}:{evidence.line}"
        table.add_row(Text(f"    {label}", style="dim"), Text.assemble(evidence.text, (f"  [{where}]", "dim")))
        label = ""
    for label, text in (("effect", finding.effect), ("fix", finding.remedy), ("confirm", finding.confirm)):
        if text:
            table.add_row(Text(f"    {label}", style="dim"), Text(text, style="cyan" if label == "confirm" else ""))
    return table


def decision_words(run: Run, verdict: Verdict) -> str:
    """The decision as a headline: ``USE ALL 2 GPUs``, ``USE 2 OF 4 GPUs: 0, 2``, ``FIX FIRST``, ..."""
    count = len(run.machine.gpus) if run.machine is not None and run.command != "predict" else 0
    decision = {
        "use_all": f"USE ALL {verdict.num_gpus or count} GPUs" if (verdict.num_gpus or count) > 1 else "USE THE GPU",
        "use_fewer": f"USE {verdict.num_gpus or len(verdict.gpus) or 'FEWER'}" + (f" OF {count} GPUs" if count else " GPUs"),
        "use_one": "USE ONE GPU",
        "fix_first": "FIX FIRST",
        "cannot_judge": "CANNOT JUDGE",
    }[verdict.decision]
    if verdict.gpus and verdict.decision in {"use_fewer", "use_one"}:
        decision += f": {listed(verdict.gpus)}"
    return decision


def headline_words(run: Run, verdict: Verdict) -> tuple[str, str]:
    """What is said first and what beside it. A box to give back is not introduced by an order to use all of it."""
    decision = decision_words(run, verdict)
    if verdict.keep_box is False and verdict.decision == "use_all":
        return "GIVE THE BOX BACK", f"OR {decision}"
    return decision, {True: "KEEP THE BOX", False: "GIVE THE BOX BACK", None: ""}[verdict.keep_box]


def _verdict(run: Run, verdict: Verdict) -> RenderableType:
    decision, keep = headline_words(run, verdict)
    colour = {"use_all": "green", "use_fewer": "yellow", "use_one": "yellow", "fix_first": "red", "cannot_judge": "magenta"}[
        verdict.decision
    ]
    if verdict.keep_box is False and verdict.decision != "fix_first":
        colour = "red"
    head = Table.grid(expand=True)
    head.add_column(ratio=1)
    head.add_column(justify="right", no_wrap=True)
    head.add_row(Text(decision, style=f"bold {colour}"), Text(keep, style=f"bold {colour}"))
    body: list[RenderableType] = [head, Text(verdict.sentence)]
    if verdict.keep_box is None and (reason := verdict.missing.get("keep_box")):
        body.append(Text(f"Keep the box or give it back: cannot say, {reason}.", style="dim"))
    return Panel(
        Group(*body), title=Text("Verdict", style="bold"), title_align="left", border_style=colour, box=box.ROUNDED, padding=(0, 2)
    )
