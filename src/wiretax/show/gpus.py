"""The GPUs one by one: what each computes and copies under load, or, without measurements, what the driver says of it."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

from rich.console import RenderableType
from rich.text import Text

from wiretax.model.machine import Gpu, PcieLink
from wiretax.model.measurement import Compute, Copy
from wiretax.model.run import Run
from wiretax.show.figures import Figures
from wiretax.show.plain import Symbols, indented, spread_fraction, unknown_line
from wiretax.units import duration, memory, percent, rate, significant

MOST_ROWS = 16
"""GPUs listed one by one; of more only the slowest and the odd ones are."""
THROTTLE_WORDS = {
    "sw_power_cap": "power cap",
    "hw_slowdown": "hardware slowdown",
    "sw_thermal_slowdown": "heat",
    "hw_thermal_slowdown": "heat (hardware)",
    "hw_power_brake_slowdown": "power brake",
    "applications_clocks_setting": "clock setting",
    "sync_boost": "sync boost",
    "display_clock_setting": "display clock",
}
SLOW_FRACTION = 0.05
"""Share below the median from which a GPU is coloured; healthy GPUs of one box differ by 1 to 3 %."""


def compute_table(run: Run, symbols: Symbols) -> list[RenderableType]:
    """A row a GPU (or CPU rank): matmul alone and with all others, memory, host copies, clock, PCIe under load, what held it back.

    Args:
        run: a cleaned run.
        symbols: the sign set of the stream.
    """
    alone = {c.rank: c for c in run.measurements.compute if not c.together}
    together = {c.rank: c for c in run.measurements.compute if c.together}
    ranks = sorted(alone.keys() | together.keys())
    if not ranks:
        return []
    on_gpu = any(c.gpu is not None for c in run.measurements.compute)
    host = _host_copies(run.measurements.copies)
    figure = _Figure(run.measurements.compute, symbols)
    table = _table()
    burst = any(c.matmul_burst_flops_per_second is not None for c in alone.values())
    headings = ["\n\nGPU" if on_gpu else "\n\nrank", *([f"matmul\nburst\n{figure.unit}"] if burst else [])]
    headings += [f"matmul\nalone\n{figure.unit}", f"matmul\nall run\n{figure.unit}", "\nmemory\nGB/s"]
    if on_gpu:
        headings += ["from\nhost\nGB/s", "to\nhost\nGB/s"] if host else []
        headings += ["\nclock\nMHz", "\nPCIe\nbusy"]
    for heading in headings:
        table.add_column(heading, justify="left" if "PCIe" in heading else "right", no_wrap=True)
    if on_gpu:
        table.add_column("\n\nheld back by", overflow="fold")
    main = together or alone
    shown, left_out = _chosen(ranks, main)
    middle = _median(c.matmul_flops_per_second for c in together.values())
    for r in shown:
        some = together.get(r) or alone[r]
        row = [
            Text(str(r if some.gpu is None else some.gpu), style="bold"),
            *([_number(_burst(alone.get(r), figure), symbols)] if burst else []),
            Text(figure(alone.get(r))),
            _against(together.get(r), middle, figure),
        ]
        row.append(_number(some.memory_bytes_per_second and some.memory_bytes_per_second / 1e9, symbols))
        if on_gpu:
            row += [_number((bandwidth := host.get((some.gpu, way))) and bandwidth / 1e9, symbols) for way in ("from", "to") if host]
            row += [_number(some.clocks_mhz, symbols), _pcie_busy(run, some, symbols), _held_back(some)]
        table.add_row(*row)
    parts: list[RenderableType] = [indented(table)]
    spread = max((s for c in run.measurements.compute if (s := spread_fraction(c.matmul_samples_seconds)) is not None), default=None)
    if left_out:
        parts.append(_note(f"{left_out} more between {_range(main, figure)}, none held back"))
    if spread is not None:
        parts.append(_note(f"{symbols.plus_minus}{percent(spread)} at most within a matmul figure"))
    return parts


def host_copy_line(run: Run, symbols: Symbols) -> list[RenderableType]:
    """Copies within host memory, which is all a machine without GPUs has."""
    copies = [c for c in run.measurements.copies if c.source_gpu is None and c.target_gpu is None and c.bandwidth_bytes_per_second]
    if not copies:
        return []
    best = max(copies, key=lambda c: c.bandwidth_bytes_per_second or 0.0)
    spread = spread_fraction(best.samples_seconds)
    text = f"host memory to host memory: {rate(best.bandwidth_bytes_per_second or 0.0)}"
    if best.latency_seconds is not None:
        text += f", a small copy in {duration(best.latency_seconds)}"
    return [_note(text + (f", {symbols.plus_minus}{percent(spread)}" if spread is not None else ", one sample"))]


def facts_table(gpus: Sequence[Gpu], symbols: Symbols) -> list[RenderableType]:
    """A row a GPU with what the driver says of it: for ``inspect``, where nothing is measured.

    Columns that are the same for all or known of none are left out where they would say nothing.
    """
    if not gpus:
        return []
    columns: list[tuple[str, list[Text]]] = [("\nGPU", [Text(str(gpu.index), style="bold") for gpu in gpus])]
    unknown: dict[str, list[str]] = {}
    for name, heading, texts in (
        ("memory_bytes", "\nmemory", [_memory(gpu.memory_bytes) for gpu in gpus]),
        ("memory_used_bytes", "\nin use", [_memory(gpu.memory_used_bytes) for gpu in gpus]),
        ("pcie", "PCIe\nnow", [Text(link_words(gpu.pcie, symbols)) for gpu in gpus]),
        ("pcie", "PCIe\nat most", [Text(link_words(_at_most(gpu.pcie), symbols)) for gpu in gpus]),
        ("nvlinks_active", "\nNVLinks", [_number(gpu.nvlinks_active, symbols) for gpu in gpus]),
        ("numa_node", "NUMA\nnode", [_number(gpu.numa_node, symbols) for gpu in gpus]),
        ("temperature_celsius", "temp\nC", [_number(gpu.temperature_celsius, symbols) for gpu in gpus]),
        ("power_watts", "power\nW", [_number(gpu.power_watts, symbols) for gpu in gpus]),
    ):
        if any(text.plain not in {"?", symbols.dash} for text in texts):
            columns.append((heading, texts))
        else:
            unknown.setdefault(_reason(gpus[0], name), []).append(heading.strip().replace("\n", " "))
    if any(gpu.cuda_ordinal not in {None, gpu.index} for gpu in gpus):
        columns.append(("CUDA\nordinal", [_number(gpu.cuda_ordinal, symbols) for gpu in gpus]))
    table = _table()
    flat = all(heading.startswith("\n") for heading, _ in columns)
    for heading, _ in columns:
        table.add_column(heading.strip() if flat else heading, justify="right", no_wrap=True)
    table.add_column("state" if flat else "\nstate", overflow="fold")
    names = len({gpu.name for gpu in gpus}) > 1
    for position, gpu in enumerate(gpus):
        table.add_row(*(texts[position] for _, texts in columns), _state(gpu, symbols, name=names))
    return [indented(table), *(unknown_line(labels, reason) for reason, labels in unknown.items())]


def link_words(link: PcieLink, symbols: Symbols) -> str:
    """``5 x16``; ``?`` for what is not known."""
    if link.generation is None and link.width is None:
        return "?"
    return f"{link.generation or '?'} {symbols.times}{link.width or '?'}"


def _reason(gpu: Gpu, name: str) -> str:
    """Why a reading is missing; for a PCIe link, why its parts are."""
    missing = gpu.pcie.missing if name == "pcie" else gpu.missing
    return missing.get(name) or next(iter(missing.values() if name == "pcie" else ()), "no reason recorded")


def _table() -> Figures:
    return Figures()


def _note(text: str) -> RenderableType:
    return indented(Text(text, style="dim"))


def _at_most(link: PcieLink) -> PcieLink:
    return PcieLink(generation=link.max_generation, width=link.max_width)


def _number(value: float | None, symbols: Symbols) -> Text:
    if value is None:
        return Text(symbols.dash, style="dim")
    return Text(str(value) if isinstance(value, int) else significant(value))


def _memory(num_bytes: int | None) -> Text:
    return Text("?" if num_bytes is None else memory(num_bytes))


def _state(gpu: Gpu, symbols: Symbols, *, name: bool) -> Text:
    text = Text()
    said: list[tuple[str, str]] = [(gpu.name or "unknown GPU", "")] if name else []
    if gpu.status != "ok":
        said.append((f"{symbols.bad} {gpu.status}: {gpu.status_reason or 'no reason recorded'}", "bold red"))
    if gpu.mig == "enabled":
        said.append(("MIG", "yellow"))
    if gpu.other_processes:
        said.append((f"{gpu.other_processes} other process{'es' if gpu.other_processes > 1 else ''}", "yellow"))
    if gpu.utilization_fraction is not None and gpu.utilization_fraction >= 0.05:
        said.append((f"{percent(gpu.utilization_fraction)} busy", "yellow"))
    if gpu.ecc_uncorrected_errors:
        said.append((f"{gpu.ecc_uncorrected_errors} ECC errors", "bold red"))
    if gpu.throttle_reasons and set(gpu.throttle_reasons) - {"gpu_idle"}:
        said.append((", ".join(r for r in gpu.throttle_reasons if r != "gpu_idle"), "yellow"))
    for words, style in said or [("ok", "green")]:
        text.append(", " if text else "").append(words, style=style)
    return text


class _Figure:
    """Writes matmul rates in one unit, which the heading of the table names."""

    def __init__(self, items: Iterable[Compute], symbols: Symbols) -> None:
        top = max((c.matmul_flops_per_second or 0.0 for c in items), default=0.0)
        self.scale, self.unit = (1e12, "TFLOP/s") if top >= 1e12 else (1e9, "GFLOP/s")
        self.symbols = symbols

    def __call__(self, item: Compute | None) -> str:
        if item is None or item.matmul_flops_per_second is None:
            return self.symbols.dash
        return (self.symbols.unstable if item.unstable else "") + significant(item.matmul_flops_per_second / self.scale)


def _burst(item: Compute | None, figure: _Figure) -> float | None:
    return item.matmul_burst_flops_per_second / figure.scale if item is not None and item.matmul_burst_flops_per_second else None


def _against(item: Compute | None, middle: float | None, figure: _Figure) -> Text:
    """The figure, with how far it is behind the median of all where that is much."""
    if item is None or item.matmul_flops_per_second is None or not middle:
        return Text(figure(item))
    behind = 1 - item.matmul_flops_per_second / middle
    if behind >= SLOW_FRACTION:
        return Text(f"-{percent(behind)}  {figure(item)}", style="bold yellow")
    return Text(figure(item))


def _pcie_busy(run: Run, item: Compute, symbols: Symbols) -> Text:
    """The link under load, coloured where it stays below what card and slot could."""
    if item.pcie is None:
        return Text(symbols.dash, style="dim")
    now = PcieLink(generation=item.pcie.generation, width=item.pcie.width)
    gpu = run.machine.gpu(item.gpu) if run.machine is not None and item.gpu is not None else None
    less = gpu is not None and ((now.generation or 99) < (gpu.pcie.max_generation or 0) or (now.width or 99) < (gpu.pcie.max_width or 0))
    return Text(link_words(now, symbols), style="bold yellow" if less else "")


def _held_back(item: Compute) -> Text:
    if item.throttle_reasons is None:
        return Text(f"unknown: {item.missing.get('throttle_reasons', 'no reason recorded')}", style="dim")
    reasons = [reason for reason in item.throttle_reasons if reason != "gpu_idle"]
    if not reasons:
        return Text("nothing", style="dim")
    hot = any("thermal" in reason for reason in reasons) and item.temperature_celsius is not None
    text = ", ".join(THROTTLE_WORDS.get(reason, reason.replace("_", " ")) for reason in reasons)
    # The power cap is the normal limit of a data-centre GPU under a matmul; heat and brakes are not.
    return Text(
        f"{text}, {item.temperature_celsius:.0f} C" if hot else text, style="" if set(reasons) <= {"sw_power_cap"} else "bold yellow"
    )


def _host_copies(copies: Iterable[Copy]) -> dict[tuple[int | None, str], float]:
    """Best one-way rate between each GPU and the host, by GPU and way."""
    best: dict[tuple[int | None, str], float] = {}
    for copy in copies:
        if copy.route != "host" or copy.direction != "one_way" or copy.concurrency != "alone" or copy.bandwidth_bytes_per_second is None:
            continue
        if (copy.source_gpu is None) == (copy.target_gpu is None):
            continue
        key = (copy.target_gpu, "from") if copy.source_gpu is None else (copy.source_gpu, "to")
        best[key] = max(best.get(key, 0.0), copy.bandwidth_bytes_per_second)
    return best


def _chosen(ranks: Sequence[int], items: dict[int, Compute]) -> tuple[list[int], int]:
    """The ranks to list and how many are left out: beyond 16, the eight slowest and every one held back."""
    if len(ranks) <= MOST_ROWS:
        return list(ranks), 0
    slowest = sorted(ranks, key=lambda r: (items[r].matmul_flops_per_second or 0.0) if r in items else 0.0)[:8]
    odd = [r for r in ranks if r in items and set(items[r].throttle_reasons or ()) - {"gpu_idle", "sw_power_cap"}]
    shown = sorted(set(slowest) | set(odd))
    return shown, len(ranks) - len(shown)


def _range(items: dict[int, Compute], figure: _Figure) -> str:
    ordered = sorted((c for c in items.values() if c.matmul_flops_per_second), key=lambda c: c.matmul_flops_per_second or 0.0)
    return f"{figure(ordered[0])} and {figure(ordered[-1])} {figure.unit}" if ordered else f"unknown {figure.unit}"


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value]
    return statistics.median(known) if known else None
