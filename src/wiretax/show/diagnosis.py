"""A diagnosis as people read it: what is wrong first, each with its lines; then the machines; then what was not understood."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.text import Text

from wiretax.model.machine import Machine
from wiretax.model.pasted import InputNote
from wiretax.model.run import Run
from wiretax.show.facts import DRIVER_WORDS
from wiretax.show.plain import ASCII, UNICODE, Symbols, indented, plain, short
from wiretax.show.terminal import SEVERITY_STYLE, WIDEST, finding_block
from wiretax.show.topology import topology
from wiretax.show.topology_tree import tree

MOST_NOTES = 12
"""Lines of what was not understood; the JSON has them all."""

MOST_MACHINES = 6


def render_diagnosis(run: Run, console: Console) -> None:
    """Prints the result of ``wiretax diagnose``.

    Nothing out of the texts is taken as markup or escape code.

    Args:
        run: the document; it is cleaned here.
        console: where to.
    """
    symbols = ASCII if console.options.ascii_only else UNICODE
    run = plain(run, console.encoding)
    width = min(console.width, WIDEST)
    for part, wide in _parts(run, console.width, symbols):
        console.print(part, width=console.width if wide else width, markup=False, highlight=False, emoji=False)


def _parts(run: Run, console_width: int, symbols: Symbols) -> Iterable[tuple[RenderableType, bool]]:
    counts = [f"{number} {word}{'' if number == 1 else 's'}" for word in _SEVERITIES if (number := _count(run, word))]
    yield Text.assemble(("wiretax diagnose", "bold"), (symbols.dot + (", ".join(counts) or "nothing found"), "dim")), False
    if run.verdict is not None:
        yield Text(run.verdict.sentence, style=SEVERITY_STYLE.get(run.findings[0].severity, "") if run.findings else ""), False
    for finding in run.findings:
        yield Text(), False
        yield finding_block(finding, symbols), False
    for label, machine, single in machines_of(run):
        parts = _machine(replace(run, machine=machine), machine, console_width, symbols, single)
        if parts or machine_words(machine, symbols):
            yield Text(), False
            yield Text.assemble((label, "bold"), (f"  {machine_words(machine, symbols)}", "dim")), False
            yield from parts
    notes = notes_of(run)
    if notes:
        yield Text(), False
        yield Text("Not understood", style="bold"), False
        yield from ((indented(Text(line, style="bold red" if grave else "dim")), False) for line, grave in notes)


_SEVERITIES = ("critical", "problem", "warning", "info")


def _count(run: Run, severity: str) -> int:
    return sum(1 for finding in run.findings if finding.severity == severity)


def machines_of(run: Run) -> list[tuple[str, Machine, bool]]:
    """The machines of the texts with a heading each, and whether there is only one; runs on one machine count once."""
    if not run.parts:
        return [("Machine, as the texts show it", run.machine, True)] if run.machine is not None else []
    shown: list[tuple[str, Machine, bool]] = []
    for part in run.parts:
        if part.machine is None or not (part.machine.gpus or part.machine.pairs):
            continue
        if any(_same(part.machine, machine) for _, machine, _ in shown):
            continue
        shown.append((f"Machine of {part.label}", part.machine, False))
    if len(shown) == 1:
        return [("Machine, as the texts show it", shown[0][1], False)]
    return shown[:MOST_MACHINES]


def _same(one: Machine, other: Machine) -> bool:
    return (one.gpus, one.pairs) == (other.gpus, other.pairs)


def _machine(run: Run, machine: Machine, width: int, symbols: Symbols, single: bool) -> list[tuple[RenderableType, bool]]:
    """Picture and pair table; measured copies stand in the table only where there is one machine they can be of."""
    if len(machine.gpus) < 2:
        return []
    of_it = run if single else replace(run, measurements=replace(run.measurements, copies=(), peer_truth=()))
    parts: list[tuple[RenderableType, bool]] = [(part, True) for part in tree(machine, symbols)]
    known = any(pair.path or pair.p2p.read or pair.p2p.write or pair.peer_access is not None for pair in machine.pairs)
    if not known and not of_it.measurements.copies:
        return []
    table = [part for part in topology(of_it, width, symbols) if not _says_nothing(part)]
    if parts and table:
        parts.append((Text(), False))
    return [*parts, *((part, True) for part in table)]


def _says_nothing(part: RenderableType) -> bool:
    """The sentence that P2P is unknown: a finding may know better, from a log."""
    inner = part.renderable if isinstance(part, Padding) else part
    return isinstance(inner, Text) and inner.plain.startswith("Whether P2P is allowed is unknown")


def machine_words(machine: Machine, symbols: Symbols) -> str:
    """Cards, driver, NCCL and surroundings in one line."""
    names: dict[str, int] = {}
    for gpu in machine.gpus:
        names[gpu.name or "GPU"] = names.get(gpu.name or "GPU", 0) + 1
    words = [" + ".join(f"{count} {symbols.times} {short(name, 48)}" for name, count in names.items())] if names else []
    software, around = machine.software, machine.surroundings
    if machine.driver_state not in (None, "ok"):
        words.append(DRIVER_WORDS.get(machine.driver_state, "the driver does not answer"))
    words += [f"driver {short(software.driver, 30)}"] if software.driver else []
    if software.nccl_loaded is not None and software.nccl_loaded.version:
        words.append(f"NCCL {software.nccl_loaded.version}")
    words += [f"torch {short(software.torch, 30)}"] if software.torch else []
    words += [f"{name}={short(value, 20)}" for name, value in list(software.nccl_environment.items())[:4]]
    words += [short(around.virtual_machine, 20)] if around.virtual_machine not in (None, "none") else []
    words += [short(around.container, 20)] if around.container not in (None, "none") else []
    return symbols.dot.join(words)


def notes_of(run: Run) -> list[tuple[str, bool]]:
    """What could not be read or understood, a line each, and whether it is grave; the worst first."""
    order = {"unreadable": 0, "damaged": 1, "not_understood": 2}
    notes = sorted(run.input_notes, key=lambda note: order[note.kind])
    lines = [(_note(note), note.kind == "unreadable") for note in notes[:MOST_NOTES]]
    rest = sum(note.count for note in notes[MOST_NOTES:])
    if rest:
        lines.append((f"and {rest} more lines (--json lists them)", False))
    return lines


def _note(note: InputNote) -> str:
    where = "" if note.kind == "unreadable" else f"{note.source}{f':{note.line}' if note.line else ''}: "
    below = note.count - 1
    times = f" (and {below} {'line' if below == 1 else 'lines'} below)" if below and note.kind == "not_understood" else ""
    do = f" {note.do}" if note.do and note.kind != "not_understood" else ""
    text = short(note.text, 110) if note.kind == "not_understood" else f"{note.text.rstrip('.')}."
    return f"{where}{text}{times}{do}"
