"""How fast the profiled device multiplies and copies, so that a profile can be carried to another GPU."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

MATMUL_SIZE = 8192
MATMUL_SIZE_CPU = 512
COPY_BYTES = 1 << 29
COPY_BYTES_CPU = 32 << 20
_ROUNDS = 5


def rates(device: torch.device) -> tuple[float, float]:
    """Floating-point operations a second of a matrix product, and bytes read plus written a second of a copy.

    bf16 on a GPU, float32 on a CPU; random data, since a product of zeros runs 13 % faster.
    """
    import torch

    cuda = device.type == "cuda"
    size, num_bytes = (MATMUL_SIZE, COPY_BYTES) if cuda else (MATMUL_SIZE_CPU, COPY_BYTES_CPU)
    left = torch.randn(size, size, device=device).to(torch.bfloat16 if cuda else torch.float32)
    product = torch.empty_like(left)
    source = torch.rand(num_bytes // 4, device=device)
    target = torch.empty_like(source)
    matmul = seconds_of(lambda: torch.mm(left, left, out=product), device)
    copy = seconds_of(lambda: target.copy_(source), device)
    return 2 * size**3 / matmul, 2 * num_bytes / copy


def seconds_of(call: Callable[[], object], device: torch.device) -> float:
    """Median over a few rounds of four calls, after a first one."""
    import torch

    calls, found = 4, []
    for number in range(_ROUNDS + 1):
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        if number:
            found.append((time.perf_counter() - begin) / calls)
    return median(found)
