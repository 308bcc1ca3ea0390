"""What each GPU computes and how fast its memory is, alone and while all others do the same.

No collective runs here: a slow GPU, a power limit or shared lanes show before synchronisation hides who is to blame.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from wiretax.measure.buffers import cache_bytes, free_bytes, is_out_of_memory
from wiretax.measure.host_load import HostLoadMeter, meter_of
from wiretax.measure.rank import Rank
from wiretax.measure.timing import Summary, measure, timer_for
from wiretax.measure.transformer import block_step, head_step
from wiretax.measure.under_load import UnderLoad
from wiretax.model.measurement import Compute

if TYPE_CHECKING:
    import torch

MATMUL_SIZE = 8192
MATMUL_SIZE_CPU = 512
COPY_BYTES = 1 << 30
COPY_BYTES_CPU = 64 << 20
BURST_PRODUCTS = 11
PCIE_BYTES = 32 << 20
CLOSING_SECONDS = 0.1
ALONE_SHARE, TOGETHER_SHARE = 0.55, 0.2
"""Of the time; the rest is for the transformer's parts."""
_ALONE_ONLY = "measured for each GPU alone only"


def compute(rank: Rank, *, seconds: float | None = None) -> None:
    """Measures every rank alone in turn, then all together; every rank of the stage calls this and keeps its own results.

    On a GPU: bf16 (fp16 where the GPU has no bf16) matrix product of size 8192 on random data, since one of zeros runs 13 % faster;
    a device copy counted as bytes read plus written; the state of GPU and PCIe link under these loads; then, on all GPUs at the same
    time, one transformer block and one output head. On a CPU rank: a float32 product and a copy.

    Args:
        rank: this rank.
        seconds: for everything; until the deadline by default.

    Raises:
        OutOfTimeError: the deadline passed; what had been measured is kept.
    """
    end = min(rank.deadline, rank.clock() + seconds if seconds is not None else rank.deadline) - CLOSING_SECONDS
    meter = meter_of(rank)
    _load_library(rank)
    left = max(rank.agree("compute/seconds", end - rank.clock()), 0.0)
    alone = _Measurement(rank, meter, together=False)
    try:
        for turn in range(rank.world_size):
            if turn == rank.rank:
                meter.start()
                alone.products_and_copies(ALONE_SHARE * left / rank.world_size)
            rank.exchange("compute/turn", True)
        if rank.world_size > 1:
            _all_together(rank, meter, TOGETHER_SHARE * left)
        if rank.is_cuda:
            rank.emit(alone.result())  # a kernel's first call can outlast the stage, and what is known must not go with it
            alone.transformer(max(rank.agree("compute/transformer", end - rank.clock()), 0.0))
    finally:
        rank.emit(alone.result())  # takes the place of the earlier one


def _load_library(rank: Rank) -> None:
    """Runs a little product once, on all ranks at the same time: on a cold disk the libraries take seconds to load."""
    import torch

    rank.at("loading of libraries")
    if rank.is_cuda:
        square = torch.randn(512, 512, device=rank.device, dtype=dtype_of(rank.device))
        torch.neg(torch.mm(square, square), out=square)
        timer_for(rank).wait()
    rank.exchange("compute/loaded", True)


def _all_together(rank: Rank, meter: HostLoadMeter, seconds: float) -> None:
    """The same products and copies by all ranks at once."""
    measurement = _Measurement(rank, meter, together=True)
    try:
        meter.start()
        measurement.products_and_copies(seconds)
    finally:
        rank.emit(measurement.result())
    rank.exchange("compute/together", True)


class _Measurement:
    """What one rank has found out so far: whatever ends it, :meth:`result` gives that, and a reason for the rest."""

    def __init__(self, rank: Rank, meter: HostLoadMeter, *, together: bool) -> None:
        self._rank, self._meter, self._together = rank, meter, together
        self._load = UnderLoad(rank.gpu)
        self._found: dict[str, Any] = {}
        self._unstable = False
        no_gpu = {} if rank.is_cuda else dict.fromkeys(("pcie", "layer_seconds", "head_seconds"), "a CPU rank has no GPU")
        self._missing: dict[str, str] = dict.fromkeys(_NULLABLE, "the time was spent before it was measured")
        alone_only = ("matmul_burst_flops_per_second", "pcie", "layer_seconds", "head_seconds")
        self._missing |= dict.fromkeys(alone_only, _ALONE_ONLY) if together else {}
        self._missing |= no_gpu

    def products_and_copies(self, seconds: float) -> None:
        """The matrix product with the GPU's state, the memory, and (alone) the PCIe link."""
        together = " together" if self._together else ""
        self._rank.at(f"matmul{together}")
        self._matmul(seconds * 0.6)
        self._rank.at(f"memory copy{together}")
        self._memory(seconds * 0.25)
        self._forget_memory()
        if self._rank.is_cuda and not self._together:
            self._rank.at("pcie copy")
            self._pcie(seconds * 0.1)

    def transformer(self, seconds: float) -> None:
        """One block and one output head, forward and backward."""
        for name, make, field in (("transformer block", block_step, "layer_seconds"), ("output head", head_step, "head_seconds")):
            self._rank.at(name)
            if (summary := self._or_too_large(partial(self._step, make, 0.45 * seconds), field)) is not None:
                self._keep(field, summary.seconds)
            self._forget_memory()

    def result(self) -> Compute:
        """The record as it stands."""
        for name, field, value in (
            ("clocks_mhz", "sm_clock_mhz", self._load.clock_mhz),
            ("throttle_reasons", "throttle_reasons", self._load.throttle_reasons),
            ("power_watts", "power_watts", self._load.power_watts),
            ("temperature_celsius", "temperature_celsius", self._load.temperature_celsius),
        ):
            if value is not None:
                self._keep(name, value)
            else:
                self._missing[name] = self._load.why(field)
        return Compute(
            gpu=self._rank.gpu,
            rank=self._rank.rank,
            together=self._together,
            dtype=str(dtype_of(self._rank.device)).removeprefix("torch."),
            unstable=self._unstable,
            host_load=self._meter.read(),
            missing=dict(self._missing),
            **self._found,
        )

    def _keep(self, field: str, value: Any) -> None:
        self._found[field] = value
        self._missing.pop(field, None)

    def _matmul(self, seconds: float) -> None:
        import torch

        rank = self._rank
        size, operands = operands_for(rank.device, MATMUL_SIZE if rank.is_cuda else MATMUL_SIZE_CPU)
        if self._together:
            rank.exchange("compute/matmul", size)
        if not operands:
            why = f"not even a product of size {size} fits into free memory"
            self._missing |= dict.fromkeys(("matmul_flops_per_second", "matmul_burst_flops_per_second", "matmul_size"), why)
            return
        left, right, out = operands

        def product() -> None:
            torch.mm(left, right, out=out)

        if not self._together:
            burst = timer_for(rank).burst(product, lead=3, samples=BURST_PRODUCTS, calls=1)
            self._keep("matmul_burst_flops_per_second", 2 * size**3 / sorted(burst)[BURST_PRODUCTS // 2])
        with self._load:
            summary = measure(rank, product, seconds=seconds, fill=True)
        self._keep("matmul_size", size)
        self._keep("matmul_flops_per_second", 2 * size**3 / summary.seconds)
        self._found["matmul_samples_seconds"] = summary.samples_seconds
        self._unstable |= summary.unstable

    def _memory(self, seconds: float) -> None:
        """A copy from memory to memory, by the better of the driver's copy and a kernel's on GPUs."""
        import torch

        rank, field = self._rank, "memory_bytes_per_second"
        num_bytes = min(COPY_BYTES if rank.is_cuda else COPY_BYTES_CPU, int(free_bytes(rank.device) * 0.2)) // 4 * 4
        made = self._or_too_large(lambda: [torch.rand(num_bytes // 4, device=rank.device) for _ in range(2)], field)
        if self._together:
            rank.exchange("compute/memory", made is not None)
        if made is None:
            return
        if num_bytes < 2 * cache_bytes(rank.device):
            self._missing[field] = "the free memory is smaller than the cache, which would be measured instead"
            return
        source, target = made
        ways: list[Callable[[], Any]] = [lambda: target.copy_(source)]
        if rank.is_cuda:
            ways.append(lambda: torch.neg(source, out=target))
        summaries = [measure(rank, way, seconds=seconds / len(ways), fill=self._together) for way in ways]
        best = min(summaries, key=lambda summary: summary.seconds)
        self._keep(field, 2 * num_bytes / best.seconds)
        self._found["memory_samples_seconds"] = best.samples_seconds
        self._unstable |= best.unstable

    def _pcie(self, seconds: float) -> None:
        """The state of the link while pinned memory is copied over it; idle links go to sleep and say nothing."""
        import torch

        try:
            host = torch.empty(PCIE_BYTES, dtype=torch.uint8, pin_memory=True)
            on_gpu = torch.empty(PCIE_BYTES, dtype=torch.uint8, device=self._rank.device)
        except RuntimeError as error:
            self._missing["pcie"] = f"the buffers of a copy over the link could not be made: {str(error).splitlines()[0]}"
            return
        with UnderLoad(self._rank.gpu) as load:
            measure(self._rank, lambda: on_gpu.copy_(host, non_blocking=True), seconds=seconds, fill=True)
        self._keep("pcie", load.pcie)

    def _step(self, make: Callable[[torch.device, torch.dtype], Callable[[], None]], seconds: float) -> Summary:
        return measure(self._rank, make(self._rank.device, dtype_of(self._rank.device)), seconds=seconds)

    def _or_too_large(self, make: Callable[[], Any], field: str) -> Any:
        """What ``make`` returns, or None and a reason where memory does not allow it."""
        try:
            return make()
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            self._missing[field] = "does not fit into the memory that is free"
        return None

    def _forget_memory(self) -> None:
        """Gives the allocator's memory back to whoever else needs it."""
        import torch

        if self._rank.is_cuda:
            torch.cuda.empty_cache()


_NULLABLE = (
    "matmul_size",
    "matmul_flops_per_second",
    "matmul_burst_flops_per_second",
    "memory_bytes_per_second",
    "pcie",
    "layer_seconds",
    "head_seconds",
)


def dtype_of(device: torch.device) -> torch.dtype:
    """What this device multiplies fast."""
    import torch

    if device.type != "cuda":
        return torch.float32
    # compute capability 8.0 (Ampere) is the first with bf16 tensor cores; torch emulates it below, slowly
    return torch.bfloat16 if torch.cuda.get_device_capability(device) >= (8, 0) else torch.float16


def operands_for(device: torch.device, size: int) -> tuple[int, list[torch.Tensor]]:
    """Three random square matrices for a product, of the largest size up to ``size`` that fits, halved at each try; none below 512."""
    import torch

    dtype = dtype_of(device)
    while True:
        try:
            return size, [torch.randn(size, size, device=device, dtype=dtype) for _ in range(3)]
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            if size <= 512:
                return size, []
            size //= 2
