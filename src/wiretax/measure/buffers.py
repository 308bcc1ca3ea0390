"""Memory to measure with: as large as is free, rotated through so that caches are not measured, and filled with known values."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from wiretax.measure.rank import Rank
from wiretax.probe.cgroup import memory_left_bytes

if TYPE_CHECKING:
    import torch

BLOCK_ELEMENTS = 250_007
"""Length of the pattern: a prime, so that data shifted by any power of two is seen."""
CPU_FOOTPRINT_BYTES = 32 << 20
"""Host buffers are rotated over this much: more than the per-core caches, little enough for a laptop."""
MOST_SLICES = 64
FREE_SHARE = 0.35
"""Share of the free memory that one of two arenas may take; the rest is for the communicator and for others."""
_CHECK_ELEMENTS = 32 * BLOCK_ELEMENTS
_blocks: dict[str, torch.Tensor] = {}


def _block(device: torch.device) -> torch.Tensor:
    """The same whole numbers from 0 to 255 on every rank."""
    import torch

    if str(device) not in _blocks:
        generator = torch.Generator().manual_seed(250_007)
        _blocks[str(device)] = torch.randint(0, 256, (BLOCK_ELEMENTS,), generator=generator).float().to(device)
    return _blocks[str(device)]


def fill(view: torch.Tensor, offset: float) -> None:
    """Writes the pattern plus ``offset`` into a contiguous one-dimensional tensor."""
    block = _block(view.device)[: view.numel()] + offset
    whole = view.numel() // BLOCK_ELEMENTS * BLOCK_ELEMENTS
    if whole:
        view[:whole].view(-1, BLOCK_ELEMENTS).copy_(block)
    view[whole:].copy_(block[: view.numel() - whole])


def holds(view: torch.Tensor, offset: float, *, scale: float = 1.0) -> bool:
    """Whether a tensor holds ``scale`` times the pattern plus ``offset``, compared where it lies, in parts of bounded memory."""
    block = _block(view.device)[: view.numel()] * scale + offset
    for start in range(0, view.numel(), _CHECK_ELEMENTS):
        part = view[start : start + _CHECK_ELEMENTS]
        whole = part.numel() // BLOCK_ELEMENTS * BLOCK_ELEMENTS
        if whole and not bool((part[:whole].view(-1, BLOCK_ELEMENTS) == block).all()):
            return False
        if not bool((part[whole:] == block[: part.numel() - whole]).all()):
            return False
    return True


def free_bytes(device: torch.device) -> int:
    """Memory that can be had now: of the GPU, or of the host within its control group's limit."""
    if device.type == "cuda":
        import torch

        return int(torch.cuda.mem_get_info(device)[0])
    return host_free_bytes()


def host_free_bytes(root: Path = Path("/")) -> int:
    """MemAvailable, or what the control groups leave, whichever is less; 1 GiB where nothing can be read."""
    found = []
    try:
        lines = (root / "proc/meminfo").read_text().splitlines()
        found += [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    except (OSError, ValueError, IndexError):
        pass  # the control group may still say
    if (left := memory_left_bytes(root)) is not None:
        found.append(left)
    return min(found) if found else 1 << 30


def is_out_of_memory(error: Exception) -> bool:
    """Whether this is how torch says that memory is short: of the GPU by a class of its own, of the host by words."""
    import torch

    # the driver says "out of memory" where torch has no class for it: while pinning host memory
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or any(
        words in str(error) for words in ("can't allocate memory", "not enough memory", "out of memory")
    )


def cache_bytes(device: torch.device) -> int:
    """What buffers are rotated over: twice the GPU's L2, or :data:`CPU_FOOTPRINT_BYTES`."""
    if device.type != "cuda":
        return CPU_FOOTPRINT_BYTES
    import torch

    properties = torch.cuda.get_device_properties(device)
    return 2 * int(getattr(properties, "L2_cache_size", 64 << 20))


@dataclass(slots=True, kw_only=True)
class Arenas:
    """Two stretches of float32 memory, one to give from and one to get into, cut into slices for each size."""

    source: torch.Tensor
    target: torch.Tensor
    footprint_bytes: int

    @property
    def num_bytes(self) -> int:
        """Size of each."""
        return 4 * int(self.target.numel())

    def slices(self, source_elements: int, target_elements: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Pairs of buffers that together cover the footprint, or one where a buffer is larger than that."""
        largest = max(source_elements, target_elements)
        # slices start at multiples of 512 bytes, as an allocator would hand them out
        spacing = -(-largest // 128) * 128
        room = max(self.target.numel() // spacing, 1)
        count = max(1, min(room, MOST_SLICES, -(-self.footprint_bytes // 4 // spacing)))
        spacing = max(spacing, min(self.target.numel(), self.footprint_bytes // 4) // count // 128 * 128)
        if count == 1:
            spacing = 0
        return [
            (self.source[at : at + source_elements], self.target[at : at + target_elements])
            for at in range(0, max(count * spacing, 1), max(spacing, 1))
        ]


def make_arenas(rank: Rank, largest_bytes: int, members: tuple[int, ...], topic: str) -> Arenas:
    """Allocates arenas for sizes up to ``largest_bytes``, or up to what the fullest of the members has room for.

    All members get arenas of the same size. On CPU ranks the pages are touched only when a size uses them.
    """
    import torch

    if rank.is_cuda:
        torch.cuda.empty_cache()  # what an earlier group of ranks used counts as free again only then
    footprint = cache_bytes(rank.device)
    wanted = max(largest_bytes, footprint) + 512
    sharing = 1 if rank.is_cuda else len(members)
    room = int(free_bytes(rank.device) * FREE_SHARE / sharing)
    # two ranks of one GPU see the same free memory
    same_gpu = max(rank.gpus.count(gpu) for gpu in rank.gpus) if rank.gpus else 1
    size = min(rank.exchange(f"{topic}/room", min(wanted, room // same_gpu), members))
    while True:
        source = target = None
        try:
            source = torch.empty(max(size // 4, 1), dtype=torch.float32, device=rank.device)
            target = torch.empty(max(size // 4, 1), dtype=torch.float32, device=rank.device)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise  # a GPU that fails would fail at every size, and memory must not be blamed for it
            source = target = None
        fits = all(rank.exchange(f"{topic}/fits", target is not None, members))
        if fits and source is not None and target is not None:
            arenas = Arenas(source=source, target=target, footprint_bytes=min(footprint, size))
            # whatever lay there before might be denormal, which CPUs add slowly, or NaN
            fill(source[: arenas.footprint_bytes // 4], 1)
            fill(target[: arenas.footprint_bytes // 4], 1)
            return arenas
        if size <= 4096:
            raise MemoryError(f"not even {size} bytes could be allocated on every rank")
        size //= 2
        del source, target
        if rank.is_cuda:
            torch.cuda.empty_cache()
