"""The machine in words: the heading lines of every run, and the software and surroundings that ``inspect`` lists."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from wiretax.model.machine import Machine
from wiretax.model.run import Run
from wiretax.show.gpus import link_words
from wiretax.show.plain import Symbols, indented, short, unknown_line
from wiretax.show.topology import path_class
from wiretax.units import duration, memory

DRIVER_WORDS = {
    "absent": "no NVIDIA driver",
    "mismatch": "the driver and its library are of different versions",
    "hung": "the driver does not answer",
    "error": "the driver answered with an error",
}


def heading(run: Run, symbols: Symbols) -> list[RenderableType]:
    """Two to four lines: which machine, which software, when, how long.

    Args:
        run: a cleaned run.
        symbols: the sign set of the stream.
    """
    lines: list[RenderableType] = []
    title = Text.assemble((f"wiretax {run.command}".rstrip(), "bold"), (symbols.dot + when(run.created_at), "dim"))
    outcome = run.outcome
    if outcome is not None and outcome.duration_seconds is not None:
        took = duration(outcome.duration_seconds)
        title.append(symbols.dot + (f"{took} of {outcome.budget_seconds:g} s" if outcome.budget_seconds else took), style="dim")
    lines.append(title)
    machine = run.machine
    if machine is None:
        return lines
    lines.append(Text(symbols.dot.join(_hardware(machine, symbols)), style="bold"))
    around = [*_software(machine), *_surroundings(machine)]
    lines.extend([Text(symbols.dot.join(around))] if around else [])
    if machine.origin != "live":
        lines.append(_origin(machine, symbols))
    return lines


def environment(machine: Machine) -> list[RenderableType]:
    """Software and surroundings, a line each, with the reason where a reading is missing."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, style="dim")
    table.add_column(overflow="fold")
    software, around = machine.software, machine.surroundings
    driver = software.driver and f"{software.driver}{' (unofficial)' if software.driver_flavour == 'unofficial' else ''}"
    torch = software.torch and f"{software.torch}, " + (f"built for CUDA {software.torch_cuda}" if software.torch_cuda else "CPU only")
    shm = around.dev_shm_bytes is not None and (
        memory(around.dev_shm_bytes) + (f", {memory(around.dev_shm_free_bytes)} free" if around.dev_shm_free_bytes is not None else "")
    )
    cpus = around.cpus_usable is not None and f"{around.cpus_usable} usable" + (f" of {around.cpus_total}" if around.cpus_total else "")
    found = software.nccl_found is not None and (", ".join(f"{n.version or '?'} ({n.path})" for n in software.nccl_found) or "none")
    loaded = software.nccl_loaded is not None and f"{software.nccl_loaded.version or '?'} ({software.nccl_loaded.path})"
    unlimited = around.memlock_bytes is None and around.missing.get("memlock_bytes") == "unlimited"
    rows: list[tuple[str, str | bool | None, str | None]] = [
        ("driver", driver, software.missing.get("driver") or machine.driver_detail or DRIVER_WORDS.get(machine.driver_state or "")),
        ("CUDA of the driver", software.cuda, software.missing.get("cuda")),
        ("torch", torch, software.missing.get("torch")),
        ("NCCL on disk", found, software.missing.get("nccl_found")),
        ("NCCL loaded", loaded, software.missing.get("nccl_loaded")),
        ("NCCL variables", ", ".join(f"{k}={v}" for k, v in software.nccl_environment.items()) or "none set", None),
        ("nccl.conf", ", ".join(f"{k}={v}" for k, v in software.nccl_conf.items()) or "nothing set", None),
        ("container", around.container, around.missing.get("container")),
        ("virtual machine", around.virtual_machine, around.missing.get("virtual_machine")),
        ("/dev/shm", shm, around.missing.get("dev_shm_bytes")),  # noqa: S108 - a label, no file is made
        (
            "locked memory",
            "unlimited" if unlimited else around.memlock_bytes is not None and f"at most {memory(around.memlock_bytes)}",
            around.missing.get("memlock_bytes"),
        ),
        ("IOMMU", around.iommu, around.missing.get("iommu")),
        ("ACS", around.acs, around.missing.get("acs")),
        ("CPU", around.cpu_model, around.missing.get("cpu_model")),
        ("CPUs", cpus, around.missing.get("cpus_usable")),
        ("NUMA nodes", around.numa_nodes is not None and str(around.numa_nodes), around.missing.get("numa_nodes")),
        ("scheduler", around.scheduler, around.missing.get("scheduler")),
        ("cloud", around.cloud, around.missing.get("cloud")),
    ]
    unknown: dict[str, list[str]] = {}
    for label, value, reason in rows:
        if value:
            table.add_row(Text(label), Text(str(value)))
        else:
            unknown.setdefault(reason or "no reason recorded", []).append(label)
    parts: list[RenderableType] = [indented(table)]
    parts.extend(unknown_line(labels, reason) for reason, labels in unknown.items())
    return parts


def when(created_at: str) -> str:
    """``2026-11-30 22:15 UTC``; what is no such time is shown as it stands."""
    try:
        return datetime.fromisoformat(created_at).astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")
    except (ValueError, OverflowError):
        return short(created_at, 40)


def _hardware(machine: Machine, symbols: Symbols) -> list[str]:
    if not machine.gpus:
        state = DRIVER_WORDS.get(machine.driver_state or "", "no GPU")
        cpu = machine.surroundings.cpu_model
        return ["no GPU" if state == "no GPU" else f"no GPU ({state})", *([short(cpu, 60)] if cpu else [])]
    names = Counter(gpu.name or "unknown GPU" for gpu in machine.gpus)
    words = [" + ".join(f"{count} {symbols.times} {short(name, 48)}" for name, count in names.items())]
    sizes = {gpu.memory_bytes for gpu in machine.gpus if gpu.memory_bytes is not None}
    if len(sizes) == 1:
        words.append(memory(sizes.pop()))
    paths = sorted({pair.path for pair in machine.pairs if pair.path}, key=lambda path: (path_class(path), path))
    if paths:
        words.append("/".join(short(path, 12) for path in paths[:6]))
    links = {link_words(gpu.pcie, symbols) for gpu in machine.gpus}
    if len(links) == 1 and links != {"?"}:
        words.append(f"PCIe {links.pop()}")
    return words


def _software(machine: Machine) -> list[str]:
    software = machine.software
    words = []
    if software.driver:
        words.append(f"driver {software.driver}" + (" (unofficial)" if software.driver_flavour == "unofficial" else ""))
    if software.cuda:
        words.append(f"CUDA {software.cuda}")
    if software.torch:
        words.append(f"torch {software.torch}")
    elif machine.origin == "live":
        words.append("no torch")
    if software.nccl_loaded is not None:
        words.append(f"NCCL {software.nccl_loaded.version or 'of unknown version'} loaded")
    return [short(word, 60) for word in words]


def _surroundings(machine: Machine) -> list[str]:
    around = machine.surroundings
    words = []
    if around.virtual_machine and around.virtual_machine != "none":
        words.append(f"{around.virtual_machine} guest")
    if around.container and around.container != "none":
        words.append(around.container)
    if around.cloud and around.cloud != "none":
        words.append(around.cloud)
    return [short(word, 40) for word in words]


def _origin(machine: Machine, symbols: Symbols) -> Text:
    labels = {
        "constructed": "CONSTRUCTED MACHINE, not a measurement",
        "recorded": "RECORDED MACHINE, not this one",
        "pasted": "READ FROM PASTED TEXT, not from this machine",
    }
    line = Text.assemble((f"{symbols.severity['warning']} {labels[machine.origin]}", "bold magenta"))
    if machine.origin_note:
        line.append(f": {machine.origin_note}", style="magenta")
    return line
