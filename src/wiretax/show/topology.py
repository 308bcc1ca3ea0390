"""How the GPUs are joined: what the driver claims for each pair, whether data really arrives, and how fast."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from wiretax.model.machine import PATH_RANK, GpuPair, Machine
from wiretax.model.measurement import Copy
from wiretax.model.run import Run
from wiretax.show.plain import Symbols, indented, listed, spread_fraction
from wiretax.units import gigabytes_per_second, percent, rate

LARGEST_MATRIX = 16
"""GPUs up to which the matrix is drawn; beyond, pairs are summed up by class of path."""

PATH_WORDS = {
    "PIX": "one PCIe switch",
    "PXB": "several PCIe switches",
    "PHB": "the host bridge of one CPU",
    "NODE": "host bridges of one NUMA node",
    "SYS": "the link between CPU sockets or NUMA nodes",
}
P2P_WORDS = {
    "OK": "the driver allows it",
    "CNS": "the chipset does not support it",
    "GNS": "this GPU model does not support it",
    "TNS": "not supported over this path",
    "DR": "switched off by a driver setting (registry key)",
    "NS": "not supported",
    "U": "the driver does not know",
}


@dataclass(frozen=True, slots=True)
class Cell:
    """What the matrix says of one ordered pair, one text a row of the cell."""

    path: Text
    p2p: Text
    direct: Text
    staged: Text


def topology(run: Run, width: int, symbols: Symbols) -> list[RenderableType]:
    """The section on pairs: matrix or summary, then what holds for all of them in words.

    Args:
        run: a cleaned run.
        width: columns to draw in.
        symbols: the sign set of the stream.
    """
    machine = run.machine
    if machine is None or len(machine.gpus) < 2:
        return []
    parts: list[RenderableType] = []
    if all(pair.path is None for pair in machine.pairs) and not any(c.route != "host" for c in run.measurements.copies):
        reason = _usual(pair.missing.get("path") for pair in machine.pairs)
        parts.append(indented(Text(f"How the pairs are joined is unknown: {reason.rstrip('.')}.", style="dim")))
    else:
        parts.append(_matrix(run, machine, width, symbols) if len(machine.gpus) <= LARGEST_MATRIX else _classes(run, machine))
    parts.extend(indented(note) for note in [*_p2p_sentences(run, machine, symbols), *_copy_sentences(run, symbols), *_legend(machine)])
    return parts


def path_class(path: str | None) -> str:
    """``NV18`` and ``NV4`` are both ``NV``; an unread path is ``?``."""
    if path is None:
        return "?"
    return "NV" if path.startswith("NV") and path[2:].isdigit() else path


def p2p_code(pair: GpuPair) -> str:
    """Read and write status as one word: ``OK``, ``CNS``, ``OK/CNS`` where they differ, ``?`` where unread."""
    read, write = pair.p2p.read or "?", pair.p2p.write or "?"
    return read if read == write else f"{read}/{write}"


def unordered(pairs: Iterable[GpuPair]) -> list[tuple[GpuPair, ...]]:
    """Pairs grouped so that both directions are one group."""
    groups: dict[tuple[int, int], list[GpuPair]] = {}
    for pair in pairs:
        groups.setdefault((min(pair.source_gpu, pair.target_gpu), max(pair.source_gpu, pair.target_gpu)), []).append(pair)
    return [tuple(group) for group in groups.values()]


def one_way(copies: Iterable[Copy], route: str) -> dict[tuple[int, int], Copy]:
    """The best copy of each GPU pair made alone, one way, by this route."""
    best: dict[tuple[int, int], Copy] = {}
    for copy in copies:
        if copy.source_gpu is None or copy.target_gpu is None or copy.bandwidth_bytes_per_second is None:
            continue
        if (copy.route, copy.direction, copy.concurrency) != (route, "one_way", "alone"):
            continue
        key = (copy.source_gpu, copy.target_gpu)
        if key not in best or copy.bandwidth_bytes_per_second > (best[key].bandwidth_bytes_per_second or 0):
            best[key] = copy
    return best


def _matrix(run: Run, machine: Machine, width: int, symbols: Symbols) -> RenderableType:
    indices = [gpu.index for gpu in machine.gpus]
    direct, staged = one_way(run.measurements.copies, "direct"), one_way(run.measurements.copies, "staged")
    cells = {
        (a, b): _cell(run, machine.pair(a, b), direct.get((a, b)), staged.get((a, b)), symbols) for a in indices for b in indices if a != b
    }
    p2p_known = any(cell.p2p.plain != "?" for cell in cells.values())
    rows = ["path", *(["p2p"] if p2p_known else []), *(["direct"] if direct else []), *(["staged"] if staged else [])]
    labels = {"p2p": "P2P", "direct": "direct GB/s", "staged": "staged GB/s"}
    label_width = max(len(labels.get(row, "GPU00")) for row in rows) + 2
    cell_width = max([5, *(getattr(cell, row).cell_len for cell in cells.values() for row in rows)])
    at_once = max(1, (width - label_width) // (cell_width + 2))
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 0, 0, 2))
    table.add_column(no_wrap=True)
    for _ in indices[:at_once]:
        table.add_column(no_wrap=True, justify="right", min_width=cell_width)
    for start in range(0, len(indices), at_once):
        columns = indices[start : start + at_once]
        if start:
            table.add_row()
        table.add_row(Text(), *(Text(f"GPU{b}", style="bold") for b in columns))
        for a in indices:
            for row in rows:
                label = Text(f"GPU{a}", style="bold") if row == "path" else Text(labels[row], style="dim")
                own = Text(symbols.dash, style="dim") if row == "path" else Text()
                table.add_row(label, *(own if a == b else getattr(cells[a, b], row) for b in columns))
    return indented(table)


def _cell(run: Run, pair: GpuPair | None, direct: Copy | None, staged: Copy | None, symbols: Symbols) -> Cell:
    if pair is None:
        unknown = Text("?", style="dim")
        return Cell(path=unknown, p2p=unknown, direct=_speed(run, direct, symbols), staged=_speed(run, staged, symbols))
    return Cell(
        path=Text(pair.path or "?", style="cyan" if path_class(pair.path) == "NV" else ""),
        p2p=_p2p(run, pair, symbols),
        direct=_speed(run, direct, symbols),
        staged=_speed(run, staged, symbols),
    )


def _p2p(run: Run, pair: GpuPair, symbols: Symbols) -> Text:
    code = p2p_code(pair)
    truth = next(
        (t for t in run.measurements.peer_truth if (t.source_gpu, t.target_gpu) == (pair.source_gpu, pair.target_gpu)),
        None,
    )
    if truth is not None and truth.outcome == "ok":
        return Text(f"{code} {symbols.ok}", style="green")
    if truth is not None and truth.outcome in {"wrong_data", "hang", "error"}:
        return Text(f"{code} {symbols.bad}", style="bold red")
    return Text(code, style="dim" if code == "?" else "" if code == "OK" else "yellow")


def _speed(run: Run, copy: Copy | None, symbols: Symbols) -> Text:
    if copy is None or copy.bandwidth_bytes_per_second is None:
        return Text(symbols.dash, style="dim")
    text = gigabytes_per_second(copy.bandwidth_bytes_per_second)
    if copy.verified is False:
        return Text(f"{text} {symbols.bad}", style="bold red")
    style = ""
    if copy.route == "direct":
        limit = next(
            (
                e
                for e in run.expectations
                if e.subject == "pair_copy" and (e.source_gpu, e.target_gpu) == (copy.source_gpu, copy.target_gpu)
            ),
            None,
        )
        if limit is not None:
            style = "green" if copy.bandwidth_bytes_per_second >= limit.low_bytes_per_second else "yellow"
    return Text(f"{symbols.unstable}{text}" if copy.unstable else text, style=style)


def _classes(run: Run, machine: Machine) -> RenderableType:
    """Beyond 16 GPUs: a row a class of path, and the slowest pairs by name."""
    copies = one_way(run.measurements.copies, "direct") or one_way(run.measurements.copies, "staged")
    groups: dict[str, list[GpuPair]] = {}
    for pair in machine.pairs:
        groups.setdefault(pair.path or "?", []).append(pair)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for heading in ("path", "pairs", "P2P"):
        table.add_column(heading, justify="right" if heading == "pairs" else "left", no_wrap=heading == "pairs", overflow="fold")
    for heading in ("lowest", "median", "highest"):
        table.add_column(f"{heading}\nGB/s", justify="right", no_wrap=True)
    for path in sorted(groups, key=lambda name: (PATH_RANK.get(path_class(name), 9), name)):
        members = groups[path]
        counts = Counter(p2p_code(group[0]) for group in unordered(members))
        rates = [
            copies[key].bandwidth_bytes_per_second or 0.0
            for key in ((pair.source_gpu, pair.target_gpu) for pair in members)
            if key in copies
        ]
        summary = (min(rates), statistics.median(rates), max(rates)) if rates else ()
        table.add_row(
            Text(path, style="cyan" if path_class(path) == "NV" else ""),
            Text(str(len(unordered(members)))),
            Text(", ".join(f"{code} {number}" for code, number in counts.most_common())),
            *(Text(gigabytes_per_second(value)) for value in summary),
            *(Text("not measured" if k == 0 else "", style="dim") for k in range(3 - len(summary))),
        )
    return indented(table)


def _p2p_sentences(run: Run, machine: Machine, symbols: Symbols) -> list[Text]:
    """What the driver says of P2P over all pairs, and whether data was seen to arrive."""
    groups = unordered(machine.pairs)
    if not groups:
        return [Text("The driver said nothing about pairs: " + machine.missing.get("pairs", "no reason recorded") + ".", style="dim")]
    whole = f"all {len(groups)} pairs" if len(groups) > 1 else "the pair"
    codes = Counter(code for group in groups for code in {p2p_code(pair) for pair in group})
    notes = []
    if set(codes) == {"OK"}:
        notes.append(Text(f"The driver allows P2P for {whole}.", style="green"))
    elif "OK" not in codes and "?" not in codes:
        reasons = ", ".join(f"{code}: {P2P_WORDS.get(code, 'read and write differ')}" for code in codes)
        notes.append(Text(f"{symbols.severity['warning']} P2P is unsupported for {whole} ({reasons}).", style="bold yellow"))
    elif set(codes) == {"?"}:
        reason = _usual(pair.p2p.missing.get("read") for pair in machine.pairs)
        notes.append(Text(f"Whether P2P is allowed is unknown: {reason}.", style="dim"))
    else:
        counted = ", ".join(f"{code} {number}" for code, number in codes.most_common())
        notes.append(Text(f"{symbols.severity['warning']} P2P differs between the pairs: {counted}.", style="bold yellow"))
    notes.extend(_truth_sentences(run, symbols))
    return notes


def _truth_sentences(run: Run, symbols: Symbols) -> list[Text]:
    tried = [truth for truth in run.measurements.peer_truth if truth.outcome != "not_run"]
    if not tried:
        return []
    broken = [truth for truth in tried if truth.outcome != "ok"]
    if not broken:
        return [
            Text(f"{symbols.ok} What one process wrote, the other GPU's process read back unchanged, on each tried pair.", style="green")
        ]
    words = {"wrong_data": "wrong data", "hang": "no answer", "error": "an error"}
    return [
        Text(
            f"{symbols.bad} GPU{truth.source_gpu} {symbols.to} GPU{truth.target_gpu}: {words[truth.outcome]} "
            f"when one process wrote to the other{f' ({truth.detail})' if truth.detail else ''}.",
            style="bold red",
        )
        for truth in broken[:8]
    ]


def _copy_sentences(run: Run, symbols: Symbols) -> list[Text]:
    """What changes when all pairs copy at once, and the slowest pair where it stands out."""
    notes = []
    spreads = [
        s
        for route in ("direct", "staged")
        for c in one_way(run.measurements.copies, route).values()
        if (s := spread_fraction(c.samples_seconds))
    ]
    if spreads:
        notes.append(Text(f"{symbols.plus_minus}{percent(max(spreads))} at most within a copy figure", style="dim"))
    for route in ("direct", "staged"):
        alone = one_way(run.measurements.copies, route)
        if len(alone) < 3:
            continue  # One pair in both directions has no others beside it.
        crowd = [
            (copy.bandwidth_bytes_per_second, alone[copy.source_gpu, copy.target_gpu].bandwidth_bytes_per_second)
            for copy in run.measurements.copies
            if copy.route == route and copy.direction == "one_way" and copy.concurrency == "all_pairs"
            if copy.source_gpu is not None and copy.target_gpu is not None and (copy.source_gpu, copy.target_gpu) in alone
        ]
        shares = [(a, a / b) for a, b in crowd if a and b]
        if shares:
            middle = statistics.median(share for _, share in shares)
            low, high = min(a for a, _ in shares), max(a for a, _ in shares)
            span = rate(high) if high - low < 0.02 * high else f"{gigabytes_per_second(low)} to {rate(high)}"
            notes.append(
                Text(f"All pairs at once, {route}: {span} each, {percent(middle)} of a pair alone.", style="yellow" if middle < 0.8 else "")
            )
        rates = {key: copy.bandwidth_bytes_per_second or 0.0 for key, copy in alone.items()}
        middle_rate = statistics.median(rates.values())
        slow = sorted((value, key) for key, value in rates.items() if value < 0.7 * middle_rate)
        if slow:
            named = ", ".join(f"{a}{symbols.to}{b} {gigabytes_per_second(value)}" for value, (a, b) in slow[:6])
            more = f" and {len(slow) - 6} more" if len(slow) > 6 else ""
            notes.append(Text(f"Far below the median of {rate(middle_rate)} {route}: {named}{more} GB/s.", style="yellow"))
    return notes


def _usual(reasons: Iterable[str | None]) -> str:
    """The reason most readings are missing for."""
    known = Counter(reason for reason in reasons if reason)
    return known.most_common(1)[0][0] if known else "no reason recorded"


def _legend(machine: Machine) -> list[Text]:
    """What the codes that occur mean, and which GPUs the driver did not answer for."""
    paths = {pair.path for pair in machine.pairs if pair.path} - {"X"}
    ordered = sorted(paths, key=lambda path: (PATH_RANK.get(path_class(path), 9), path))
    words = [
        f"{path} = {path[2:]} NVLinks" if path_class(path) == "NV" else f"{path} = {PATH_WORDS[path]}"
        for path in ordered
        if path_class(path) == "NV" or path in PATH_WORDS
    ]
    notes = [Text("; ".join(words), style="dim")] if words else []
    lost: Sequence[int] = [gpu.index for gpu in machine.gpus if gpu.status != "ok"]
    if lost:
        notes.append(Text(f"GPU {listed(lost)} did not answer.", style="bold red"))
    return notes
