"""Reads package versions: ``pip list``, ``pip freeze``, ``pip show``, ``conda list``, ``dpkg -l``, ``collect_env``, Python prompts.

Observations:
    ``package``: ``name``, ``version`` of a package that matters for communication.
    ``torch.build``: ``version``, ``cuda`` (None for a CPU or ROCm build), ``rocm``, ``is_cpu_build`` (True, False or None).
    ``torch.cuda_available``: ``available``.
    ``cuda.toolkit``: ``version`` (collect_env's runtime or ``nvcc``), which is not the driver's.
"""

from __future__ import annotations

import re
from typing import Any

from wiretax.model.machine import NcclLibrary, Software, Surroundings
from wiretax.probe.readers import pasted
from wiretax.probe.readers.piece import Piece, Text
from wiretax.probe.readers.streams import Stream, streams

FORMAT = "package versions"
_NAMES = (
    r"torch|pytorch|pytorch-cuda|nvidia-nccl-cu1[1-9]|libnccl2|libnccl-dev|nccl|rccl|deepspeed|accelerate|transformers|vllm|sglang|lightning|"
    r"pytorch[-_]lightning|horovod|megatron[-_]core|tensorflow|jax|jaxlib|cupy-cuda\d\dx|aws-ofi-nccl|nvidia-cuda-runtime-cu1[1-9]|triton|"
    r"flash[-_]attn|bitsandbytes|mpi4py|unsloth|nvidia-driver-\d{3}(?:-open|-server)?"
)
_VERSION = r"(\d{1,4}(?:\.\d{1,6}){0,4}[\w.+~-]{0,40})"
_TABLE = re.compile(rf"\s*(?:ii\s{{1,4}})?({_NAMES})(?::amd64)?(?:\s{{1,60}}|==|\s?@\s?|: {{1,8}}|=){_VERSION}(?=\s|$|\)|,)", re.IGNORECASE)
_TAGGED = re.compile(rf"\s*\[(?:pip3?|conda)\]\s{{1,4}}({_NAMES})(?:==|\s{{1,40}}){_VERSION}(.{{0,80}})", re.IGNORECASE)
_SHOW_NAME = re.compile(rf"Name:\s{{1,4}}({_NAMES})\s*$", re.IGNORECASE)
_SHOW_VERSION = re.compile(rf"Version:\s{{1,4}}{_VERSION}\s*$")
_COLLECT = re.compile(
    r"\s*(PyTorch version|PyTorch|Torch version|CUDA used to build PyTorch|ROCM used to build PyTorch|Is CUDA available|CUDA available|"
    r"CUDA runtime version|Nvidia driver version|CUDA Driver Version|Python version|Python Version|NCCL version|Is debug build|OS|"
    r"GCC version|"
    r"Clang version|CMake version|Libc version|Python platform|GPU models and configuration|cuDNN version|HIP runtime version|"
    r"MIOpen runtime version|Is XNNPACK available|CUDA_MODULE_LOADING set to|Versions of relevant libraries)\s?:\s{0,40}(.*)$"
)
_TORCH_PROMPT = re.compile(
    r"torch\.__version__|torch\.version\.cuda|torch\.cuda\.nccl\.version\(\)|torch\.cuda\.is_available\(\)|nccl\.version"
)
_ANSWER = re.compile(r"\s*(?:'([\w.+]{2,40})'|([\d.]{3,12}(?:\+\w{2,12})?)|\((\d{1,2}), (\d{1,3}), (\d{1,3})\)|(True|False))\s*$")
_NVCC = re.compile(r"Cuda compilation tools, release (\d{1,2}\.\d{1,2})")
_CONDA_BUILD = re.compile(r"cuda(\d{1,2}\.\d{1,2})")


def read(text: Text) -> tuple[Piece, ...]:
    """The versions in each stream, as one piece a stream."""
    return tuple(piece for stream in streams(text) if (piece := _Reader(text.source, stream).piece()) is not None)


class _Reader:
    """Collects the versions of one stream."""

    def __init__(self, source: str, stream: Stream) -> None:
        self._source = source
        self._stream = stream
        self._notes = pasted.Notes(source, stream.lines)
        self._lines: set[int] = set()
        self._found: dict[str, Any] = {}
        self._libraries: dict[str, NcclLibrary] = {}
        self._missing: dict[str, str] = {}

    def piece(self) -> Piece | None:
        """What was found, or None."""
        prompt: str | None = None
        shown: str | None = None
        for line in self._stream.lines:
            text, number = line.text, line.number
            if len(text) > 400 or not text:
                continue
            answer = _ANSWER.match(text) if prompt else None
            if prompt and answer and self._answer(prompt, answer, number):
                prompt = None
                continue
            prompt = text if _TORCH_PROMPT.search(text) else prompt if text.startswith(">>>") else None
            name, version = _SHOW_NAME.match(text), _SHOW_VERSION.match(text)
            if name:
                shown = name.group(1)
                continue
            if shown and version:
                self._package(shown, version.group(1), "", number)
                shown = None
                continue
            tagged = _TAGGED.match(text) if text.lstrip().startswith("[") else None
            table = _TABLE.match(text)
            collect = _COLLECT.match(text) if ":" in text else None
            if tagged:
                self._package(tagged.group(1), tagged.group(2), tagged.group(3), number)
            elif collect:
                self._collect_env(collect.group(1), collect.group(2).strip(), number)
            elif table and self._plausible(text, table):
                self._package(table.group(1), table.group(2), text[table.end() :], number)
            elif release := _NVCC.search(text):
                self._notes.add(number, "cuda.toolkit", version=release.group(1))
                self._lines.add(number)
        if not self._lines or not (self._notes.observations() or self._found):
            return None
        torch = self._found.get("torch")
        if torch:
            self._note_torch(torch)
        software = Software(
            driver=self._found.get("driver"),
            torch=torch,
            torch_cuda=self._found.get("torch_cuda"),
            python=self._found.get("python"),
            nccl_found=tuple(self._libraries.values()) or None,
            missing=self._missing,
        )
        surroundings = Surroundings()
        return Piece(
            source=self._source,
            format=FORMAT,
            first_line=min(self._lines),
            machine=pasted.machine(FORMAT, hostname=self._stream.host, software=software, surroundings=surroundings),
            observations=self._notes.observations(),
            understood=frozenset(self._lines),
        )

    @staticmethod
    def _plausible(text: str, match: re.Match[str]) -> bool:
        """Whether a line is a list entry and no sentence that happens to begin with a package's name."""
        rest = text[match.end() :].strip()
        return len(rest.split()) <= 6 and not re.search(r"[.!?]\s|\b(?:is|was|with|and|the|on|in)\b", rest)

    def _package(self, name: str, version: str, rest: str, number: int) -> None:
        name = name.lower().replace("_", "-")
        self._notes.add(number, "package", name=name, version=version)
        self._lines.add(number)
        if name in ("torch", "pytorch"):
            self._torch(version)
            build = _CONDA_BUILD.search(rest)
            if build:
                self._found.setdefault("torch_cuda", build.group(1))
            self._found.setdefault("torch_line", number)
        elif name.startswith("nvidia-nccl") or name in ("nccl", "libnccl2"):
            where = {"nccl": "conda package nccl", "libnccl2": "system package libnccl2"}.get(name, f"pip package {name}")
            self._libraries[name] = NcclLibrary(path=where, version=re.split(r"[-+]", version)[0])
        elif name.startswith("nvidia-driver"):
            self._found.setdefault("driver", re.split(r"[-+]", version)[0])

    def _torch(self, version: str) -> None:
        self._found.setdefault("torch", version)
        local = version.partition("+")[2]
        cuda = re.fullmatch(r"cu(\d{2})(\d{1,2})", local)
        if cuda:
            self._found.setdefault("torch_cuda", f"{cuda.group(1)}.{cuda.group(2)}")
        elif local == "cpu":
            self._missing["torch_cuda"] = "a CPU build of torch"
            self._found["cpu_build"] = True
        elif local.startswith("rocm"):
            self._missing["torch_cuda"] = "a ROCm build of torch"
            self._found["rocm"] = local.removeprefix("rocm")

    def _collect_env(self, label: str, value: str, number: int) -> None:
        if label in ("PyTorch version", "PyTorch", "Torch version"):
            if not re.match(r"\d{1,2}\.\d", value):
                return
            self._torch(value.split(maxsplit=1)[0])
            self._found.setdefault("torch_line", number)
        elif label == "CUDA used to build PyTorch":
            if pasted.said(value) in (None, "None", "Could not collect"):
                self._missing["torch_cuda"] = "a CPU build of torch"
                self._found["no_cuda_build"] = True
            else:
                self._found.setdefault("torch_cuda", value)
        elif label == "ROCM used to build PyTorch" and pasted.said(value) is not None:
            self._found["rocm"] = value
        elif label in ("Is CUDA available", "CUDA available"):
            self._notes.add(number, "torch.cuda_available", available=value.lower() in ("true", "yes"))
        elif label in ("Nvidia driver version", "CUDA Driver Version"):
            driver = re.match(r"\d{3}(?:\.\d{1,3}){1,2}", value)
            if driver:
                self._found.setdefault("driver", driver.group())
        elif label in ("Python version", "Python Version"):
            python = re.match(r"\d\.\d{1,2}(?:\.\d{1,2})?", value)
            if python:
                self._found.setdefault("python", python.group())
        elif label == "CUDA runtime version":
            toolkit = re.match(r"\d{1,2}\.\d{1,2}", value)
            if toolkit:
                self._notes.add(number, "cuda.toolkit", version=toolkit.group())
        elif label == "OS" and not re.search(r"Ubuntu|Debian|Windows|Linux|CentOS|Red Hat|Rocky|macOS|Fedora|Arch|SUSE", value):
            return
        self._lines.add(number)

    def _answer(self, prompt: str, answer: re.Match[str], number: int) -> bool:
        quoted, bare, major, minor, patch, boolean = answer.groups()
        value = quoted or bare
        if "nccl" in prompt and major:
            version = f"{major}.{minor}.{patch}"
            self._notes.add(number, "package", name="torch's nccl", version=version)
            self._libraries["torch"] = NcclLibrary(path="torch.cuda.nccl.version()", version=version)
        elif "__version__" in prompt and value:
            self._torch(value)
            self._found.setdefault("torch_line", number)
        elif "version.cuda" in prompt and value:
            self._found.setdefault("torch_cuda", value)
        elif "is_available" in prompt and boolean:
            self._notes.add(number, "torch.cuda_available", available=boolean == "True")
        else:
            return False
        self._lines.add(number)
        return True

    def _note_torch(self, version: str) -> None:
        cuda, rocm = self._found.get("torch_cuda"), self._found.get("rocm")
        is_cpu = (
            True if self._found.get("cpu_build") or (self._found.get("no_cuda_build") and not rocm) else False if cuda or rocm else None
        )
        self._notes.add(self._found["torch_line"], "torch.build", version=version, cuda=cuda, rocm=rocm, is_cpu_build=is_cpu)
