from itertools import pairwise
from types import SimpleNamespace

import pytest
import torch

import linux_trees
from wiretax.measure import buffers
from wiretax.measure.buffers import BLOCK_ELEMENTS, MOST_SLICES, Arenas, fill, holds, host_free_bytes, is_out_of_memory


def arenas(num_elements, footprint_bytes):
    return Arenas(source=torch.empty(num_elements), target=torch.empty(num_elements), footprint_bytes=footprint_bytes)


@pytest.mark.parametrize("elements", [1, 2, 1000, BLOCK_ELEMENTS - 1, BLOCK_ELEMENTS, BLOCK_ELEMENTS + 1, 3 * BLOCK_ELEMENTS + 17])
def test_what_was_filled_is_held_and_any_changed_element_is_seen(elements):
    view = torch.empty(elements)
    fill(view, 7)
    assert holds(view, 7)
    assert not holds(view, 8)
    for at in {0, elements // 2, elements - 1}:
        view[at] += 0.5
        assert not holds(view, 7)
        view[at] -= 0.5
    assert holds(view, 7)


def test_a_scaled_sum_is_held_with_its_scale():
    view = torch.empty(5000)
    fill(view, 2)
    assert holds(view * 3, 6, scale=3)
    assert not holds(view * 3, 6, scale=2)


@pytest.mark.parametrize("shift", [1, 2, 64, 4096, 65536])
def test_shifted_data_does_not_pass(shift):
    view = torch.empty(2 * BLOCK_ELEMENTS)
    fill(view, 0)
    assert not holds(torch.roll(view, shift), 0)


def test_no_value_repeats_the_whole_pattern_so_zeros_do_not_pass():
    assert not holds(torch.zeros(2), 1)
    assert not holds(torch.full((100,), float("nan")), 1)


def test_small_buffers_rotate_over_the_footprint_and_do_not_overlap():
    slices = arenas(1 << 22, 8 << 20).slices(1024, 512)
    assert len(slices) == MOST_SLICES
    starts = [target.storage_offset() for _, target in slices]
    assert starts[-1] * 4 > 7 << 20
    assert all(later - earlier >= 1024 for earlier, later in pairwise(starts))
    assert all((source.numel(), target.numel()) == (1024, 512) for source, target in slices)


def test_buffers_larger_than_the_footprint_need_no_rotation():
    slices = arenas(1 << 22, 8 << 20).slices(1 << 22, 1 << 22)
    assert len(slices) == 1
    assert slices[0][1].numel() == 1 << 22


def test_middle_buffers_cover_at_least_the_footprint():
    slices = arenas(1 << 22, 8 << 20).slices(300_000, 300_000)
    assert sum(target.numel() * 4 for _, target in slices) >= 8 << 20
    assert slices[-1][0].storage_offset() + 300_000 <= 1 << 22


def test_free_host_memory_is_what_the_control_group_leaves(tmp_path):
    linux_trees.write(tmp_path, {"proc/meminfo": "MemTotal: 32000 kB\nMemAvailable: 16000 kB\n"})
    assert host_free_bytes(tmp_path) == 16000 * 1024
    linux_trees.write(tmp_path, {"sys/fs/cgroup/memory.max": "8192000\n", "sys/fs/cgroup/memory.current": "8000000\n"})
    assert host_free_bytes(tmp_path) == 192000
    linux_trees.write(tmp_path, {"sys/fs/cgroup/memory.max": "max\n"})
    assert host_free_bytes(tmp_path) == 16000 * 1024


def test_where_nothing_can_be_read_a_modest_amount_is_assumed(tmp_path):
    assert host_free_bytes(tmp_path) == 1 << 30


@pytest.mark.parametrize(
    ("error", "short"),
    [
        (torch.OutOfMemoryError("CUDA out of memory."), True),
        (MemoryError(), True),
        (RuntimeError("[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried ..."), True),
        (RuntimeError("CUDA error: out of memory"), True),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), False),
    ],
)
def test_memory_that_is_short_is_told_from_other_errors(error, short):
    assert is_out_of_memory(error) is short


def test_a_gpu_that_fails_is_not_told_as_memory_that_is_short(monkeypatch):
    monkeypatch.setattr(buffers, "free_bytes", lambda _device: 64 << 20)
    rank = SimpleNamespace(is_cuda=False, device=torch.device("cpu"), gpus=(), exchange=lambda _topic, value, _members: [value])
    failing = RuntimeError("CUDA error: an illegal memory access was encountered")
    monkeypatch.setattr(torch, "empty", lambda *_size, **_options: (_ for _ in ()).throw(failing))
    with pytest.raises(RuntimeError, match="illegal memory access"):
        buffers.make_arenas(rank, 1 << 20, (0,), "group")


def test_what_an_earlier_group_used_of_a_nearly_full_gpu_is_there_for_the_next(monkeypatch):
    """Torch keeps what it was given, and the driver calls that used; two groups one after the other must find the same room."""
    gpu = {"free": 64 << 20, "kept": 0}

    def empty_cache():
        gpu["free"], gpu["kept"] = gpu["free"] + gpu["kept"], 0

    monkeypatch.setattr(torch.cuda, "empty_cache", empty_cache)
    monkeypatch.setattr(buffers, "free_bytes", lambda _device: gpu["free"])
    monkeypatch.setattr(buffers, "cache_bytes", lambda _device: 4096)
    rank = SimpleNamespace(is_cuda=True, device=torch.device("cpu"), gpus=(0,), exchange=lambda _topic, value, _members: [value])
    sizes = []
    for _ in range(2):
        sizes.append(buffers.make_arenas(rank, 1 << 30, (0,), "group").num_bytes)
        gpu["free"], gpu["kept"] = gpu["free"] - 2 * sizes[-1], 2 * sizes[-1]
    assert sizes[0] == sizes[1] > 16 << 20
