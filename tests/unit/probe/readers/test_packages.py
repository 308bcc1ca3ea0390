"""Package versions in every tool."""

from __future__ import annotations

from typing import Any

import pytest

from pasted_text import text
from wiretax.model.machine import Software
from wiretax.model.reading import unexplained
from wiretax.probe.readers.packages import read
from wiretax.probe.readers.piece import Piece


def software(piece: Piece) -> Software:
    assert piece.machine is not None
    assert list(unexplained(piece.machine)) == []
    return piece.machine.software


def values(piece: Piece, kind: str) -> list[dict[str, Any]]:
    return [{key: value for key, value in entry.values.items() if key != "text"} for entry in piece.observations if entry.kind == kind]


@pytest.mark.parametrize(
    ("content", "torch", "cuda", "nccl"),
    [
        (
            (
                "Package                  Version\n------------------------ ------------\n"
                "torch                    2.1.0+cu121\nnvidia-nccl-cu12         2.18.1"
            ),
            "2.1.0+cu121",
            "12.1",
            "2.18.1",
        ),
        ("torch==2.7.0+cu128\nnvidia-nccl-cu12==2.26.2", "2.7.0+cu128", "12.8", "2.26.2"),
        (
            (
                "pytorch                   2.1.0           py3.10_cuda11.8_cudnn8.7.0_0    pytorch\n"
                "nccl                      2.19.3.1             h0800d71_0    conda-forge"
            ),
            "2.1.0",
            "11.8",
            "2.19.3.1",
        ),
        ("[pip3] torch==1.0.0\n[conda] nccl                      2.4.8", "1.0.0", None, "2.4.8"),
        ("ii  libnccl2                 2.18.3-1+cuda12.2         amd64        NVIDIA Collectives", None, None, "2.18.3"),
        ("Name: torch\nVersion: 2.0.1+cu118\nSummary: Tensors", "2.0.1+cu118", "11.8", None),
        (">>> torch.__version__\n'2.4.0+cu124'\n>>> torch.cuda.nccl.version()\n(2, 20, 5)", "2.4.0+cu124", "12.4", "2.20.5"),
    ],
)
def test_versions_in_every_tool(content: str, torch: str | None, cuda: str | None, nccl: str | None) -> None:
    found = software(read(text(content))[0])
    assert (found.torch, found.torch_cuda) == (torch, cuda)
    assert [library.version for library in found.nccl_found or ()] == ([nccl] if nccl else [])


COLLECT_ENV = """\
Collecting environment information...
PyTorch version: {torch}
Is debug build: False
CUDA used to build PyTorch: {cuda}
ROCM used to build PyTorch: {rocm}

OS: Ubuntu 22.04.3 LTS (x86_64)
Python version: 3.10.12 (main, Nov 20 2023, 15:14:05) [GCC 11.4.0] (64-bit runtime)
Is CUDA available: {available}
CUDA runtime version: 12.1.105
Nvidia driver version: 535.104.05
"""


@pytest.mark.parametrize(
    ("torch", "cuda", "rocm", "available", "torch_cuda", "is_cpu"),
    [
        ("2.1.0+cu121", "12.1", "N/A", "True", "12.1", False),
        ("2.1.0+cpu", "None", "N/A", "False", None, True),
        ("2.1.0", "Could not collect", "N/A", "False", None, True),
        ("2.3.0+rocm6.0", "N/A", "6.0.32830-d62f6a171", "True", None, False),
    ],
)
def test_collect_env_tells_a_cpu_build_from_a_gpu_build(
    torch: str, cuda: str, rocm: str, available: str, torch_cuda: str | None, is_cpu: bool
) -> None:
    piece = read(text(COLLECT_ENV.format(torch=torch, cuda=cuda, rocm=rocm, available=available)))[0]
    found = software(piece)
    assert (found.torch, found.torch_cuda, found.python, found.driver) == (torch, torch_cuda, "3.10.12", "535.104.05")
    assert values(piece, "torch.build")[0]["is_cpu_build"] is is_cpu
    assert values(piece, "torch.cuda_available") == [{"available": available == "True"}]
    assert values(piece, "cuda.toolkit") == [{"version": "12.1"}]


@pytest.mark.parametrize(
    "content", ["", "torch is slow on 2 GPUs", "torch 2.1 was fine and the rest is not.", "numpy 1.26.0", "Version: 3"]
)
def test_sentences_are_no_package_lists(content: str) -> None:
    assert read(text(content)) == ()
