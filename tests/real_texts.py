"""Texts in the exact shape of real tools, from the few facts that differ: matrices, NCCL lines, tables. For tests of the diagnosis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

LEGEND = """
Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  NODE = Connection traversing PCIe as well as the interconnect between PCIe Host Bridges within a NUMA node
  PHB  = Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)
  PXB  = Connection traversing multiple PCIe bridges (without traversing the PCIe Host Bridge)
  PIX  = Connection traversing at most a single PCIe bridge
  NV#  = Connection traversing a bonded set of # NVLinks
"""


def pairs(count: int, rest: str, **named: str) -> list[list[str]]:
    """A matrix of topology codes; ``pairs(4, "SYS", p01="PHB", p23="PHB")``."""
    matrix = [["X" if a == b else rest for b in range(count)] for a in range(count)]
    for name, path in named.items():
        a, b = int(name[1]), int(name[2])
        matrix[a][b] = matrix[b][a] = path
    return matrix


def topo(
    matrix: Sequence[Sequence[str]],
    *,
    numa: Sequence[str] | None = None,
    nics: Mapping[str, Sequence[str]] | None = None,
    ansi: bool = True,
    affinity: bool = True,
    legend: bool = True,
) -> str:
    """``nvidia-smi topo -m`` with tabs, as drivers from 525 on print it."""
    count = len(matrix)
    numa = numa or ["0"] * count
    names = [f"GPU{k}" for k in range(count)] + [f"NIC{k}" for k in range(len(nics or {}))]
    heads = [*names, *(["CPU Affinity", "NUMA Affinity", "GPU NUMA ID"] if affinity else [])]
    head = "\t" + "\t".join(heads)
    lines = ["\t\x1b[4m" + head[1:] + "\x1b[0m" if ansi else head]
    columns = list((nics or {}).values())
    for a, row in enumerate(matrix):
        cells = [" X " if cell == "X" else cell for cell in row] + [column[a] for column in columns]
        tail = [f"{int(numa[a]) * 32}-{int(numa[a]) * 32 + 31}", numa[a], "", "N/A"] if affinity else []
        lines.append("\t".join([f"GPU{a}", *cells, *tail]))
    for k, column in enumerate(columns):
        lines.append("\t".join([f"NIC{k}", *column, *(" X " if k == j else "SYS" for j in range(len(columns)))]))
    text = "\n".join(lines) + "\n"
    if legend:
        text += LEGEND
        if nics:
            text += "\nNIC Legend:\n\n" + "\n".join(f"  NIC{k}: {name}" for k, name in enumerate(nics)) + "\n"
    return text


def p2p(count: int, code: str, question: str = "r", ansi: bool = True) -> str:
    """``nvidia-smi topo -p2p`` with its command line above."""
    head = "\t".join(f"GPU{k}" for k in range(count))
    lines = [f"$ nvidia-smi topo -p2p {question}", f" \t\x1b[4m{head}\t\x1b[0m" if ansi else f" \t{head}\t"]
    for a in range(count):
        lines.append(f" GPU{a}\t" + "\t".join("X" if a == b else code for b in range(count)) + "\t")
    return (
        "\n".join(lines) + "\n\nLegend:\n\n  X    = Self\n  OK   = Status Ok\n  CNS  = Chipset not supported\n  GNS  = GPU not supported\n"
    )


def nccl(host: str = "gpu-box", pid: int = 1201, dev: int = 0, tid: int | None = None) -> str:
    """The prefix of an NCCL line."""
    return f"{host}:{pid + dev}:{tid or pid + 400 + dev} [{dev}] NCCL INFO "


def ring(count: int, transport: str, host: str = "gpu-box", channels: int = 2, bracket: Sequence[str] | None = None) -> str:
    """The channel lines of a ring over all ranks, as NCCL 2.18 and later print them."""
    names = bracket or [str(k) for k in range(count)]
    lines = []
    for rank in range(count):
        after = (rank + 1) % count
        for channel in range(channels):
            lines.append(
                f"{nccl(host, dev=rank)}Channel {channel:02d}/0 : {rank}[{names[rank]}] -> {after}[{names[after]}] via {transport}"
            )
    return "\n".join(lines) + "\n"


def head(version: str, host: str = "gpu-box", cuda: str = "12.4") -> str:
    """The first lines of a log: network, driver, version."""
    line = nccl(host)
    return (
        f"{line}Bootstrap : Using eth0:192.168.10.5<0>\n"
        f"{line}cudaDriverVersion 12040\n"
        f"NCCL version {version}+cuda{cuda}\n"
        f"{line}NET/Plugin: No plugin found (libnccl-net.so)\n"
        f"{line}Failed to open libibverbs.so[.1]\n"
        f"{line}NET/Socket : Using [0]eth0:192.168.10.5<0>\n"
        f"{line}Using network Socket\n"
    )


def devices(count: int, name: str, host: str = "gpu-box") -> str:
    """The device list of nccl-tests."""
    lines = ["# Using devices"]
    lines += [f"#  Rank {k:2d} Group  0 Pid {4100 + k:6d} on {host:>10} device {k:2d} [0x{0x1B + 4 * k:02x}] {name}" for k in range(count)]
    return "\n".join(lines) + "\n"


def sweep(rows: Sequence[tuple[int, float]], count: int, *, average: float | None = None, factor: float | None = None) -> str:
    """The table of nccl-tests' all_reduce_perf: (bytes, busbw in GB/s)."""
    scale = 2 * (count - 1) / count if factor is None else factor
    lines = [
        "#                                                              out-of-place                       in-place          ",
        "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong",
        "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)       ",
    ]
    for size, busbw in rows:
        algbw = busbw / scale
        micro = size / algbw / 1e3
        half = f"{micro:8.2f}  {algbw:6.2f}  {busbw:6.2f}      0"
        lines.append(f"{size:12d}  {size // 4:12d}     float     sum      -1 {half} {half}")
    if average is not None:
        lines += ["# Out of bounds values : 0 OK", f"# Avg bus bandwidth    : {average} ", "#"]
    return "\n".join(lines) + "\n"


def bandwidth_matrix(title: str, rows: Sequence[Sequence[float]]) -> str:
    """A matrix of p2pBandwidthLatencyTest."""
    count = len(rows)
    lines = [title, "   D\\D" + "".join(f"{k:7d}" for k in range(count)) + " "]
    lines += [f"{a:6d} " + " ".join(f"{value:6.2f}" for value in row) + " " for a, row in enumerate(rows)]
    return "\n".join(lines) + "\n"


def smi_q_gpu(
    bus: str,
    name: str,
    *,
    generation: tuple[int, int] = (4, 4),
    width: tuple[int, int] = (16, 16),
    utilization: int = 98,
    state: str = "P2",
    idle: bool = False,
    extra: str = "",
) -> str:
    """One GPU of ``nvidia-smi -q`` of a 535 to 580 driver, the sections that matter."""
    return f"""GPU 00000000:{bus}:00.0
    Product Name                          : {name}
    MIG Mode
        Current                           : N/A
        Pending                           : N/A
    PCI
        GPU Link Info
            PCIe Generation
                Max                       : {generation[1]}
                Current                   : {generation[0]}
                Device Current            : {generation[0]}
                Device Max                : {generation[1]}
                Host Max                  : {generation[1]}
            Link Width
                Max                       : {width[1]}x
                Current                   : {width[0]}x
        Replays Since Reset               : 0
    Performance State                     : {state}
    Clocks Event Reasons
        Idle                              : {"Active" if idle else "Not Active"}
        Applications Clocks Setting       : Not Active
        SW Power Cap                      : Not Active
    Utilization
        Gpu                               : {utilization} %
        Memory                            : 20 %
{extra}"""


def smi_q(driver: str, *gpus: str) -> str:
    """``nvidia-smi -q`` of these GPUs."""
    return (
        "\n==============NVSMI LOG==============\n\n"
        "Timestamp                                 : Mon May  5 10:10:10 2026\n"
        f"Driver Version                            : {driver}\nCUDA Version                              : 12.4\n\n"
        f"Attached GPUs                             : {len(gpus)}\n" + "".join(gpus)
    )


def listing(*names: str, mig: dict[int, list[str]] | None = None) -> str:
    """``nvidia-smi -L``; ``mig`` has the profiles of the slices of a GPU."""
    lines = []
    for index, name in enumerate(names):
        lines.append(f"GPU {index}: {name} (UUID: GPU-{index:08x}-1a2b-3c4d-5e6f-0123456789ab)")
        for place, profile in enumerate((mig or {}).get(index, ())):
            lines.append(f"  MIG {profile:<11} Device {place:2d}: (UUID: MIG-{place:08x}-1a2b-3c4d-5e6f-0123456789ab)")
    return "\n".join(lines) + "\n"


def rocm_bandwidth(*, access: int, distance: str, rate: str = "N/A") -> str:
    """``rocm-bandwidth-test`` of one CPU and two GPUs: whether these reach each other, how far apart they are, and what a copy does."""
    return f"""          RocmBandwidthTest Version: 2.6.0

          Launch Command is: /opt/rocm/bin/rocm-bandwidth-test (rocm_bandwidth -a + rocm_bandwidth -A)


          Device: 0,  AMD EPYC 7542 32-Core Processor
          Device: 1,  Radeon RX 7900 XTX,  GPU-XX,  83:0.0
          Device: 2,  Radeon RX 7900 XTX,  GPU-XX,  03:0.0

          Inter-Device Access

          D/D       0         1         2

          0         1         1         1

          1         1         1         {access}

          2         1         {access}         1


          Inter-Device Numa Distance

          D/D       0         1         2

          0         0         20        20

          1         20        0         {distance}

          2         20        {distance}       0


          Unidirectional copy peak bandwidth GB/s

          D/D       0           1           2

          0         N/A         28.411      28.410

          1         29.013      649.528     {rate}

          2         29.016      {rate}         636.462
"""
