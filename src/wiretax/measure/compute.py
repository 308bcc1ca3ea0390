"""What each GPU computes and how fast its memory is, alone and while all others do the same.

No collective runs here: a slow GPU, a power limit or shared lanes show before synchronisation hides who is to blame.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from wiretax.measure.buffers import cache_bytes, free_bytes
from wiretax.measure.host_load import HostLoadMeter, meter_of
from wiretax.measure.rank import Rank
from wiretax.measure.timing import Summary, measure, timer_for
from wiretax.measure.transformer import block_step, head_step
from wiretax.measure.under_load import UnderLoad
from wiretax.model.measurement import Compute

if TYPE_CHECKING:
    import torch

MATMUL_SIZE = 8192
MATMUL_SIZE_CPU = 1024
COPY_BYTES = 1 << 30
COPY_BYTES_CPU = 64 << 20
PCIE_BYTES = 32 << 20
CLOSING_SECONDS = 0.1
TOGETHER_SHARE = 0.3
_ALONE = "measured on each GPU alone only"


def compute(rank: Rank, *, seconds: float | None = None) -> None:
    """Measures every rank alone in turn, then all together; every rank of the stage calls this and keeps its own results.

    On a GPU: bf16 (fp16 where the GPU has no bf16) matrix product of size 8192 on random data, since one of zeros runs 13 % faster;
    a device copy counted as bytes read plus written; the state of GPU and PCIe link under these loads; one transformer block and one
    output head. On a CPU rank: a float32 product and a copy.

    Args:
        rank: this rank.
        seconds: for everything; until the deadline by default.

    Raises:
        OutOfTimeError: the deadline passed.
    """
    end = min(rank.deadline, rank.clock() + seconds if seconds is not None else rank.deadline) - CLOSING_SECONDS
    meter = meter_of(rank)
    rank.at("loading of libraries")
    _load_libraries(rank)
    rank.exchange("compute/loaded", True)
    left = max(rank.agree("compute/seconds", end - rank.clock()), 0.0)
    together_seconds = TOGETHER_SHARE * left if rank.world_size > 1 else 0.0
    for turn in range(rank.world_size):
        if turn == rank.rank:
            meter.start()
            rank.emit(_measure(rank, meter, (left - together_seconds) / rank.world_size, together=False))
        rank.exchange("compute/turn", True)
    if rank.world_size > 1:
        meter.start()
        rank.emit(_measure(rank, meter, together_seconds, together=True))
        rank.exchange("compute/together", True)


def _load_libraries(rank: Rank) -> None:
    """Runs everything once, on all ranks at the same time: on a cold disk the first product or attention takes seconds to load."""
    import torch

    if not rank.is_cuda:
        return
    missing: dict[str, str] = {}  # what does not fit is said when it is measured
    dtype = dtype_of(rank.device)
    square = torch.randn(512, 512, device=rank.device, dtype=dtype)
    torch.mm(square, square)
    torch.neg(square, out=square)
    for make in (block_step, head_step):
        _or_too_large(partial(_once, make, rank.device, dtype), "", missing)
    timer_for(rank).wait()
    torch.cuda.empty_cache()


def _once(make: Callable[[torch.device, torch.dtype], Callable[[], None]], device: torch.device, dtype: torch.dtype) -> None:
    make(device, dtype)()


def _measure(rank: Rank, meter: HostLoadMeter, seconds: float, *, together: bool) -> Compute:
    """One rank's figures within ``seconds``."""
    missing: dict[str, str] = {}
    rank.at("matmul together" if together else "matmul")
    size, dtype, matmul, load = _matmul(rank, seconds * (0.6 if together else 0.4), missing, together=together)
    rank.at("memory copy together" if together else "memory copy")
    memory, num_bytes = _memory(rank, seconds * (0.3 if together else 0.15), missing, together=together)
    pcie = None
    layer = head = None
    if not rank.is_cuda:
        missing |= dict.fromkeys(("pcie", "layer_seconds", "head_seconds"), "a CPU rank has no GPU")
    elif together:
        missing |= dict.fromkeys(("pcie", "layer_seconds", "head_seconds"), _ALONE)
    else:
        rank.at("pcie copy")
        pcie = _pcie(rank, seconds * 0.1, missing)
        rank.at("transformer block")
        layer = _step(rank, block_step, dtype_of(rank.device), seconds * 0.17, "layer_seconds", missing)
        rank.at("output head")
        head = _step(rank, head_step, dtype_of(rank.device), seconds * 0.17, "head_seconds", missing)
    readings = {
        "clocks_mhz": load.clock_mhz,
        "throttle_reasons": load.throttle_reasons,
        "power_watts": load.power_watts,
        "temperature_celsius": load.temperature_celsius,
    }
    sources = dict(zip(readings, ("sm_clock_mhz", "throttle_reasons", "power_watts", "temperature_celsius"), strict=True))
    missing |= {name: load.why(sources[name]) for name, value in readings.items() if value is None}
    return Compute(
        gpu=rank.gpu,
        rank=rank.rank,
        together=together,
        dtype=dtype,
        matmul_size=size,
        matmul_flops_per_second=2 * size**3 / matmul.seconds if matmul and size else None,
        matmul_samples_seconds=matmul.samples_seconds if matmul else (),
        memory_bytes_per_second=2 * num_bytes / memory.seconds if memory else None,
        memory_samples_seconds=memory.samples_seconds if memory else (),
        clocks_mhz=load.clock_mhz,
        throttle_reasons=load.throttle_reasons,
        power_watts=load.power_watts,
        temperature_celsius=load.temperature_celsius,
        pcie=pcie,
        layer_seconds=layer,
        head_seconds=head,
        unstable=bool((matmul and matmul.unstable) or (memory and memory.unstable)),
        host_load=meter.read(),
        missing=missing,
    )


def dtype_of(device: torch.device) -> torch.dtype:
    """What this device multiplies fast."""
    import torch

    if device.type != "cuda":
        return torch.float32
    # compute capability 8.0 (Ampere) is the first with bf16 tensor cores; torch emulates it below, slowly
    return torch.bfloat16 if torch.cuda.get_device_capability(device) >= (8, 0) else torch.float16


def _or_too_large(make: Callable[[], Any], field: str, missing: dict[str, str]) -> Any:
    """What ``make`` returns, or None and a reason where memory does not allow it."""
    import torch

    try:
        return make()
    except (torch.OutOfMemoryError, MemoryError):
        missing[field] = "does not fit into the memory that is free"
    return None


def _matmul(rank: Rank, seconds: float, missing: dict[str, str], *, together: bool) -> tuple[int | None, str, Summary | None, UnderLoad]:
    """The product, and the GPU's state during it."""
    import torch

    name = str(dtype_of(rank.device)).removeprefix("torch.")
    load = UnderLoad(rank.gpu)
    size, operands = operands_for(rank.device, MATMUL_SIZE if rank.is_cuda else MATMUL_SIZE_CPU)
    if together:
        rank.exchange("compute/matmul", size)
    if not operands:
        missing |= dict.fromkeys(("matmul_flops_per_second", "matmul_size"), f"not even a product of size {size} fits into free memory")
        return None, name, None, load
    left, right, out = operands
    with load:
        return size, name, measure(rank, lambda: torch.mm(left, right, out=out), seconds=seconds, fill=True), load


def operands_for(device: torch.device, size: int) -> tuple[int, list[torch.Tensor]]:
    """Three random square matrices for a product, of the largest size up to ``size`` that fits, halved at each try; none below 512."""
    import torch

    dtype = dtype_of(device)
    while True:
        try:
            return size, [torch.randn(size, size, device=device, dtype=dtype) for _ in range(3)]
        except (torch.OutOfMemoryError, MemoryError):
            if size <= 512:
                return size, []
            size //= 2


def _memory(rank: Rank, seconds: float, missing: dict[str, str], *, together: bool) -> tuple[Summary | None, int]:
    """A copy from memory to memory, by the better of the driver's copy and a kernel's on GPUs."""
    import torch

    wanted = COPY_BYTES if rank.is_cuda else COPY_BYTES_CPU
    num_bytes = min(wanted, int(free_bytes(rank.device) * 0.2)) // 4 * 4
    made = _or_too_large(lambda: [torch.rand(num_bytes // 4, device=rank.device) for _ in range(2)], "memory_bytes_per_second", missing)
    if together:
        rank.exchange("compute/memory", made is not None)
    if made is None:
        return None, num_bytes
    if num_bytes < 2 * cache_bytes(rank.device):
        missing["memory_bytes_per_second"] = "the free memory is smaller than the cache, which would be measured instead"
        return None, num_bytes
    source, target = made
    if not rank.is_cuda:
        return measure(rank, lambda: target.copy_(source), seconds=seconds, fill=together), num_bytes
    by_driver = measure(rank, lambda: target.copy_(source), seconds=seconds / 2, fill=together)
    by_kernel = measure(rank, lambda: torch.neg(source, out=target), seconds=seconds / 2, fill=together)
    return min(by_driver, by_kernel, key=lambda summary: summary.seconds), num_bytes


def _pcie(rank: Rank, seconds: float, missing: dict[str, str]) -> Any:
    """The state of the link while pinned memory is copied over it; idle links go to sleep and say nothing."""
    import torch

    try:
        host = torch.empty(PCIE_BYTES, dtype=torch.uint8, pin_memory=True)
        on_gpu = torch.empty(PCIE_BYTES, dtype=torch.uint8, device=rank.device)
    except RuntimeError as error:
        missing["pcie"] = f"no memory for a copy over the link: {str(error).splitlines()[0]}"
        return None
    with UnderLoad(rank.gpu) as load:
        measure(rank, lambda: on_gpu.copy_(host, non_blocking=True), seconds=seconds, fill=True)
    return load.pcie


def _step(
    rank: Rank,
    make: Callable[[torch.device, torch.dtype], Callable[[], None]],
    dtype: torch.dtype,
    seconds: float,
    field: str,
    missing: dict[str, str],
) -> float | None:
    """Seconds of one forward and backward."""
    import torch

    summary = _or_too_large(lambda: measure(rank, make(rank.device, dtype), seconds=seconds), field, missing)
    torch.cuda.empty_cache()
    return summary.seconds if summary is not None else None
