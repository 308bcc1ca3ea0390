"""The levers of each strategy, by torch's names where torch has them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from wiretax.errors import UsageError

STRATEGIES = ("ddp", "fsdp2", "fsdp2_grad_op", "hsdp", "zero1", "zero2", "zero3", "tp", "tp_ddp", "pp", "powersgd")
"""What can be predicted. ``zero2`` and ``zero3`` are DeepSpeed's stages as their equivalents."""

_ALIASES = {
    "fsdp": "fsdp2",
    "full_shard": "fsdp2",
    "fully_shard": "fsdp2",
    "shard_grad_op": "fsdp2_grad_op",
    "no_shard": "ddp",
    "hybrid_shard": "hsdp",
    "hybrid": "hsdp",
    "zero_1": "zero1",
    "zero_2": "zero2",
    "zero_3": "zero3",
    "tensor_parallel": "tp",
    "pipeline": "pp",
}


def strategy_name(text: str) -> str:
    """A strategy by any of its names (``FULL_SHARD``, ``HYBRID_SHARD``, ``fsdp``, ``zero-1``, ...), in lower case.

    Raises:
        UsageError: not one of them.
    """
    name = text.strip().lower().replace("-", "_")
    name = _ALIASES.get(name, name)
    if name not in STRATEGIES:
        raise UsageError(f"{text!r} is no strategy.", do=f"Known: {', '.join(STRATEGIES)} (and FSDP1's FULL_SHARD, SHARD_GRAD_OP, ...).")
    return name


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a strategy is set up. The defaults are torch's."""

    accumulation_steps: int = 1
    """Micro-steps an optimizer step; DDP skips the reduction in all but the last (``no_sync``)."""
    bucket_cap_mb: float | None = None
    """DDP, in MiB. None: 25 with a first bucket of 1; a number given has no small first bucket."""
    find_unused_parameters: bool = False
    static_graph: bool = False
    gradient_as_bucket_view: bool | None = None
    """None: as in the profile."""
    comm_hook: Literal["bf16_compress", "powersgd"] | None = None
    """DDP's communication hook; the first halves fp32 gradients, the second sends two thin matrices for each."""
    powersgd_rank: int = 4
    broadcast_buffers: bool = True
    shard_group_size: int | None = None
    """HSDP: GPUs that share one copy of the model; None: the largest divisor of N that is at most N / 2."""
    forward_prefetch: int = 0
    """FSDP2: groups gathered ahead explicitly in forward (``set_modules_to_forward_prefetch``); 0 leaves it to the order of issue."""
    backward_prefetch: int = 0
    """The same in backward; 0 is torch's own prefetch of one group."""
    param_dtype: Literal["bfloat16"] | None = None
    """FSDP2: gather weights in this dtype and reduce gradients in float32 (a mixed-precision policy)."""
    reduce_scatter_buffers: int = 1
    """FSDP2's ``set_reduce_scatter_max_input_buffers``."""
    tensor_parallel_size: int | None = None
    """``tp_ddp``: GPUs in one tensor-parallel group; None: 2."""
    pipeline_micro_batches: int = 8

    def __post_init__(self) -> None:
        for name in ("accumulation_steps", "powersgd_rank", "reduce_scatter_buffers", "pipeline_micro_batches"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} is {getattr(self, name)}, but must be 1 or more.")
        for name in ("forward_prefetch", "backward_prefetch"):
            if getattr(self, name) < 0:
                raise UsageError(f"{name} is {getattr(self, name)}, but must be 0 or more.")
        if self.bucket_cap_mb is not None and not self.bucket_cap_mb > 0:
            raise UsageError(f"bucket_cap_mb is {self.bucket_cap_mb:g}, but must be above 0.")


DEFAULTS = Options()
