"""The machine drawn: GPUs, NVSwitches, PCIe switches, sockets, and what joins them, coloured by measured GB/s.

Only positions and words are decided here; the page's template turns them into SVG. Text is escaped there, like all other text.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from wiretax.model.machine import Gpu, Machine
from wiretax.model.run import Run
from wiretax.show.charts.colours import speed_step
from wiretax.show.gpus import link_words
from wiretax.show.plain import UNICODE
from wiretax.show.series import Labelled, PairRate, pair_rates
from wiretax.show.topology import path_class
from wiretax.units import gigabytes_per_second, memory, rate

WIDTH = 780
LEAST_WIDTH = 300
MOST_BOXES = 16
"""GPUs drawn one by one with their links; more become coloured tiles."""
MOST_LABELS = 4
"""GPUs up to which every link between two of them carries its figure."""


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle with up to two lines of text. ``kind`` is its CSS class, ``speed`` its colour class or ""."""

    x: float
    y: float
    width: float
    height: float
    kind: str
    text: str
    small: str = ""
    speed: str = ""
    tip: str = ""


@dataclass(frozen=True, slots=True)
class Link:
    """A line between boxes: an SVG path, its colour class (``none`` where nothing was measured), a figure, a tip."""

    path: str
    speed: str
    width: float
    tip: str
    label: str = ""
    label_x: float = 0.0
    label_y: float = 0.0
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class Picture:
    """Everything to draw, in user units, and the whole in words."""

    width: float
    height: float
    boxes: tuple[Box, ...]
    links: tuple[Link, ...]
    says: str
    notes: tuple[str, ...] = field(default=())


def picture(run: Run) -> Picture | None:
    """The picture of a run's machine; None without at least one GPU."""
    machine = run.machine
    if machine is None or not machine.gpus:
        return None
    rates = pair_rates([Labelled("", run)])
    return _tiles(machine, rates) if len(machine.gpus) > MOST_BOXES else _boxes(run, machine, rates)


def sockets(machine: Machine) -> list[list[Gpu]]:
    """GPUs grouped by CPU socket: by NUMA node where all are known, else by paths that stay within one; one group where neither tells."""
    gpus = sorted(machine.gpus, key=lambda gpu: gpu.index)
    nodes = [gpu.numa_node for gpu in gpus]
    if all(node is not None for node in nodes) and len(set(nodes)) > 1:
        return [[gpu for gpu in gpus if gpu.numa_node == node] for node in dict.fromkeys(nodes)]
    across = {(p.source_gpu, p.target_gpu) for p in machine.pairs if p.path == "SYS"}
    if not across:
        return [gpus]
    return _joined(gpus, lambda a, b: (a.index, b.index) not in across and (b.index, a.index) not in across)


def switched(machine: Machine, group: Sequence[Gpu]) -> list[list[Gpu]]:
    """GPUs of one socket that share a PCIe switch, groups of one left in place."""
    near = {(p.source_gpu, p.target_gpu) for p in machine.pairs if p.path in ("PIX", "PXB")}
    return _joined(list(group), lambda a, b: (a.index, b.index) in near or (b.index, a.index) in near)


def has_nvswitch(machine: Machine) -> bool:
    """Whether NVLinks end in a switch: the driver says so, or more than four GPUs all reach each other with equally many links."""
    if any(link.remote_kind == "switch" for gpu in machine.gpus for link in gpu.nvlinks):
        return True
    paths = {pair.path for pair in machine.pairs if pair.source_gpu != pair.target_gpu}
    return len(machine.gpus) > 4 and len(paths) == 1 and path_class(next(iter(paths))) == "NV"


def _joined(gpus: list[Gpu], together: Callable[[Gpu, Gpu], bool]) -> list[list[Gpu]]:
    groups: list[list[Gpu]] = []
    for gpu in gpus:
        mine = next((group for group in groups if any(together(gpu, other) for other in group)), None)
        if mine is None:
            groups.append([gpu])
        else:
            mine.append(gpu)
    return groups


def _boxes(run: Run, machine: Machine, rates: Sequence[PairRate]) -> Picture:
    groups = sockets(machine)
    count = len(machine.gpus)
    gap, between = (26.0, 56.0) if count <= 4 else (10.0, 24.0) if count <= 8 else (6.0, 16.0)
    side = min(150.0, (WIDTH - 40 - gap * (count - len(groups)) - between * (len(groups) - 1)) / count)
    used = side * count + gap * (count - len(groups)) + between * (len(groups) - 1)
    measured = {(r.source, r.target): r for r in rates}
    nvswitch = has_nvswitch(machine)
    spans = [abs(a.index - b.index) for a in machine.gpus for b in machine.gpus]
    top = 74.0 if nvswitch else 24.0 + min(150.0, 34.0 + 30.0 * max(spans, default=0)) if count > 1 else 20.0
    boxes: list[Box] = []
    links: list[Link] = []
    centres: dict[int, float] = {}
    edge = max(used + 40, LEAST_WIDTH)
    x = (edge - used) / 2
    has_switches = any(len(part) > 1 for group in groups for part in switched(machine, group))
    gpu_height = 62.0
    switch_y = top + gpu_height + 38
    socket_y = switch_y + (66 if has_switches else 6)
    socket_spans = []
    host = _host_rates(run)
    for group in groups:
        start = x
        parts = switched(machine, group)
        for part in parts:
            first = x
            for gpu in part:
                centres[gpu.index] = x + side / 2
                boxes.append(_gpu_box(gpu, x, top, side, gpu_height))
                x += side + gap
            if len(part) > 1:
                width = x - gap - first
                boxes.append(Box(first, switch_y, width, 28, "switch", "PCIe switch"))
                links.append(_down(first + width / 2, switch_y + 28, socket_y, None, 5, "to the CPU"))
            for gpu in part:
                end = switch_y if len(part) > 1 else socket_y
                links.append(_down(centres[gpu.index], top + gpu_height, end, host.get(gpu.index), 5, f"GPU{gpu.index} to host memory"))
        socket_spans.append((start, x - gap))
        x += between - gap
    links.extend(_between_gpus(measured, centres, top, nvswitch=nvswitch))
    if nvswitch:
        left, right = min(centres.values()) - side / 2, max(centres.values()) + side / 2
        boxes.append(Box(left, 8, right - left, 30, "switch", "NVSwitch"))
    nodes = [group[0].numa_node for group in groups]
    repeated = None in nodes or len(set(nodes)) < len(nodes)
    for number, (left, right) in enumerate(socket_spans):
        name = "CPU and host memory" if len(groups) == 1 else f"CPU socket {number if repeated else nodes[number]}"
        boxes.append(Box(left, socket_y, right - left, 40, "socket", name))
        if number:
            y = socket_y + 20
            links.append(Link(f"M{socket_spans[number - 1][1]:.0f},{y:.0f}H{left:.0f}", "none", 5, "the link between the sockets"))
    return Picture(edge, socket_y + 52, tuple(boxes), tuple(links), _says(machine, rates, groups), _notes(rates))


def _gpu_box(gpu: Gpu, x: float, y: float, side: float, height: float) -> Box:
    link = link_words(gpu.pcie, UNICODE)
    small = "" if side < 74 else f"PCIe {link}" if link != "?" else memory(gpu.memory_bytes) if gpu.memory_bytes else ""
    tip = ", ".join(part for part in (gpu.name or "unknown GPU", gpu.pci_bus_id or "", gpu.status_reason or "") if part)
    return Box(x, y, side, height, "gpu" if gpu.status == "ok" else "gpu lost", f"GPU{gpu.index}", small, tip=tip)


def _between_gpus(measured: dict[tuple[int, int], PairRate], centres: dict[int, float], top: float, *, nvswitch: bool) -> list[Link]:
    if nvswitch:
        found = []
        for index, x in centres.items():
            own = [r.measured for key, r in measured.items() if index in key and r.measured]
            middle = statistics.median(own) if own else None
            label = gigabytes_per_second(middle) if middle and len(centres) <= 8 else ""
            tip = f"GPU{index} through the NVSwitch" + (f": {rate(middle)}, the median of its copies" if middle else ", not measured")
            found.append(Link(f"M{x:.1f},38V{top:.0f}", _speed(middle), 6, tip, label, x + 8, (38 + top) / 2 + 4))
        return found
    found = []
    indices = sorted(centres)
    order = {index: position for position, index in enumerate(sorted(centres, key=lambda i: centres[i]))}
    tallest = max(top - 24.0, 30.0)
    pairs = [(a, b) for a in indices for b in indices if a < b and ((a, b) in measured or (b, a) in measured)]
    lifts: dict[tuple[int, int], float] = {}
    for a, b in pairs:
        span = abs(order[a] - order[b])
        lifts[a, b] = tallest * (0.34 + 0.66 * (span - 1) / max(len(indices) - 2, 1)) if len(indices) > 2 else tallest * 0.62
    for a, b in sorted(pairs, key=lambda pair: -abs(order[pair[0]] - order[pair[1]])):
        ways = [measured[key] for key in ((a, b), (b, a)) if key in measured]
        known = [w.measured for w in ways if w.measured]
        slowest = min(known, default=None)
        staged = any(w.route == "staged" for w in ways)
        left, right = sorted((centres[a], centres[b]))
        lift = lifts[a, b]
        # Arcs leave a GPU side by side, the far ones from its middle.
        shift = 9.0 * (1 + (len(indices) - 1 - abs(order[a] - order[b])) / max(len(indices) - 1, 1)) if len(indices) > 2 else 0.0
        left, right = left + shift, right - shift
        path = f"M{left:.1f},{top:.0f}C{left:.1f},{top - lift * 1.33:.1f} {right:.1f},{top - lift * 1.33:.1f} {right:.1f},{top:.0f}"
        words = [f"GPU{w.source} to GPU{w.target} {rate(w.measured)}" for w in ways if w.measured]
        tip = f"{ways[0].path or 'path unknown'}: " + ("; ".join(words) or "not measured") + (", through host memory" if staged else "")
        label = f"{gigabytes_per_second(slowest)} GB/s" if slowest and len(indices) <= MOST_LABELS else ""
        if label and len(indices) == 2 and ways[0].path:
            label = f"{ways[0].path}   {label}"
        width = 7 if len(indices) == 2 else 4 if len(indices) <= 4 else 2
        found.append(Link(path, _speed(slowest), width, tip, label, (left + right) / 2, top - lift - 7, dashed=staged))
    return found


def _down(x: float, start: float, end: float, value: float | None, width: float, name: str) -> Link:
    tip = f"{name}: {rate(value)} in the slower direction" if value else name
    label = gigabytes_per_second(value) if value else ""
    return Link(f"M{x:.1f},{start:.0f}V{end:.0f}", _speed(value), width, tip, label, x + 8, (start + end) / 2 + 4)


def _speed(value: float | None) -> str:
    return "none" if value is None else f"s{speed_step(value)}"


def _host_rates(run: Run) -> dict[int, float]:
    """The slower direction between each GPU and host memory, alone."""
    found: dict[int, dict[str, float]] = {}
    for copy in run.measurements.copies:
        if copy.route != "host" or (copy.direction, copy.concurrency) != ("one_way", "alone") or copy.bandwidth_bytes_per_second is None:
            continue
        gpu = copy.source_gpu if copy.source_gpu is not None else copy.target_gpu
        if gpu is not None:
            way = "to" if copy.source_gpu is None else "from"
            ways = found.setdefault(gpu, {})
            ways[way] = max(ways.get(way, 0.0), copy.bandwidth_bytes_per_second)
    return {gpu: min(ways.values()) for gpu, ways in found.items()}


def _tiles(machine: Machine, rates: Sequence[PairRate]) -> Picture:
    """Many GPUs: a tile each, coloured by the median of its copies, under the switch that joins them."""
    gpus = sorted(machine.gpus, key=lambda gpu: gpu.index)
    across = 16
    side, gap = 42.0, 6.0
    left = (WIDTH - across * side - (across - 1) * gap) / 2
    nvswitch = has_nvswitch(machine)
    top = 52.0 if nvswitch else 10.0
    boxes = [Box(left, 8, WIDTH - 2 * left, 28, "switch", "NVLink switches")] if nvswitch else []
    for position, gpu in enumerate(gpus):
        own = [r.measured for r in rates if gpu.index in (r.source, r.target) and r.measured]
        middle = statistics.median(own) if own else None
        row, column = divmod(position, across)
        tip = f"GPU{gpu.index}" + (f": {rate(middle)}, the median of its copies" if middle else ", not measured")
        kind = "tile" if gpu.status == "ok" else "tile lost"
        boxes.append(
            Box(left + column * (side + gap), top + row * (side + gap), side, side, kind, str(gpu.index), speed=_speed(middle), tip=tip)
        )
    rows = -(-len(gpus) // across)
    return Picture(WIDTH, top + rows * (side + gap) + 4, tuple(boxes), (), _says(machine, rates, sockets(machine)), _notes(rates))


def _says(machine: Machine, rates: Sequence[PairRate], groups: Sequence[Sequence[Gpu]]) -> str:
    paths = _counted(path_class(r.path) for r in rates if r.source < r.target)
    text = f"{len(machine.gpus)} GPUs on {len(groups)} CPU socket{'s' if len(groups) > 1 else ''}" if len(machine.gpus) > 1 else "One GPU"
    if paths:
        text += "; pairs by path: " + ", ".join(f"{number} {'over NVLink' if path == 'NV' else path}" for path, number in paths.items())
    known = [r.measured for r in rates if r.measured]
    return text + (f"; copies between {rate(min(known))} and {rate(max(known))}." if known else "; copies were not measured.")


def _notes(rates: Sequence[PairRate]) -> tuple[str, ...]:
    routes = {r.route for r in rates if r.route}
    if routes == {"staged"}:
        return ("Dashed: every byte goes through host memory.",)
    return ("Dashed: through host memory.",) if "staged" in routes else ()


def _counted(words: Iterable[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for word in words:
        found[word] = found.get(word, 0) + 1
    return found
