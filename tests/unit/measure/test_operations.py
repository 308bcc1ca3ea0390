import re
from pathlib import Path

import pytest
import torch

from wiretax.measure import operations as ops
from wiretax.model.measurement import OPERATIONS

NCCL_TESTS = Path(__file__).parents[2] / "data" / "nccl_tests"


def rows(name):
    """Size, elements, and (microseconds, algbw, busbw) of both placements from nccl-tests' own output."""
    for line in (NCCL_TESTS / f"nccl_tests_{name}.txt").read_text().splitlines():
        words = line.split()
        if len(words) >= 13 and words[0].isdigit() and words[1].isdigit():
            for at in (5, 9):
                yield int(words[0]), int(words[1]), *(float(word) for word in words[at : at + 3])


@pytest.mark.parametrize(
    ("name", "operation"),
    [
        ("all_reduce_default", "all_reduce"),
        ("all_reduce_shm", "all_reduce"),
        ("all_reduce_net", "all_reduce"),
        ("all_gather", "all_gather"),
        ("reduce_scatter", "reduce_scatter"),
        ("sendrecv", "send_recv"),
    ],
)
def test_sizes_algbw_and_busbw_are_those_that_nccl_tests_prints(name, operation):
    found = list(rows(name))
    assert len(found) >= 10
    for size, count, microseconds, algbw, busbw in found:
        assert ops.shape_of(operation, size, 2).num_bytes == size
        if operation == "all_gather":
            assert ops.shape_of(operation, size, 2).source_elements == count
        if operation == "reduce_scatter":
            assert ops.shape_of(operation, size, 2).target_elements == count
        ours = size / (microseconds * 1e-6) / 1e9
        assert ours == pytest.approx(algbw, abs=0.006, rel=0.001)
        assert ours * ops.bus_factor(operation, 2) == pytest.approx(busbw, abs=0.006, rel=0.001)


@pytest.mark.parametrize(
    ("operation", "world_size", "factor"),
    [
        ("all_reduce", 2, 1.0),
        ("all_reduce", 4, 1.5),
        ("all_reduce", 8, 1.75),
        ("all_gather", 4, 0.75),
        ("reduce_scatter", 8, 0.875),
        ("all_to_all", 4, 0.75),
        ("broadcast", 8, 1.0),
        ("send_recv", 8, 1.0),
    ],
)
def test_bus_factors(operation, world_size, factor):
    assert ops.bus_factor(operation, world_size) == factor


def test_sizes_that_cannot_be_cut_into_whole_elements_are_reported_as_what_is_really_sent():
    assert ops.shape_of("all_gather", 8, 4).num_bytes == 16
    assert ops.shape_of("all_to_all", 1024, 3).num_bytes == 1020
    assert ops.shape_of("all_reduce", 8, 3).num_bytes == 8
    assert ops.shape_of("all_reduce", 1, 2).num_bytes == 4


def buffers(operation, world_size, num_bytes=4096):
    shape = ops.shape_of(operation, num_bytes, world_size)
    return [(torch.zeros(shape.source_elements), torch.zeros(shape.target_elements)) for _ in range(world_size)]


def perform(operation, ranks):
    """What the operation must do, written out."""
    size = len(ranks)
    if operation == "all_reduce":
        total = sum(target for _, target in ranks)
        for _, target in ranks:
            target.copy_(total)
    elif operation == "all_gather":
        whole = torch.cat([source for source, _ in ranks])
        for _, target in ranks:
            target.copy_(whole)
    elif operation == "reduce_scatter":
        for index, (_, target) in enumerate(ranks):
            target.copy_(sum(source.chunk(size)[index] for source, _ in ranks))
    elif operation == "all_to_all":
        for index, (_, target) in enumerate(ranks):
            target.copy_(torch.cat([source.chunk(size)[index] for source, _ in ranks]))
    elif operation == "broadcast":
        for _, target in ranks:
            target.copy_(ranks[0][1])
    else:
        for index, (_, target) in enumerate(ranks):
            target.copy_(ranks[(index - 1) % size][0])


@pytest.mark.parametrize("world_size", [2, 3, 8])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_right_results_pass_and_untouched_or_changed_ones_do_not(operation, world_size):
    ranks = buffers(operation, world_size)
    for index, (source, target) in enumerate(ranks):
        ops.prepare(operation, source, target, index, world_size)
    untouched = [ops.is_right(operation, target, index, world_size) for index, (_, target) in enumerate(ranks)]
    # the root of a broadcast has the right data from the start
    assert untouched == [operation == "broadcast" and index == 0 for index in range(world_size)]
    perform(operation, ranks)
    for index, (_, target) in enumerate(ranks):
        assert ops.is_right(operation, target, index, world_size)
        target[target.numel() // 2] += 1
        assert not ops.is_right(operation, target, index, world_size)


@pytest.mark.parametrize("operation", ["all_gather", "all_to_all", "reduce_scatter", "send_recv"])
def test_data_of_the_wrong_rank_does_not_pass(operation):
    ranks = buffers(operation, 4)
    for index, (source, target) in enumerate(ranks):
        ops.prepare(operation, source, target, index, 4)
    swapped = [ranks[index] for index in (1, 0, 2, 3)]
    perform(operation, swapped)
    assert not all(ops.is_right(operation, target, index, 4) for index, (_, target) in enumerate(ranks))


def test_the_recorded_outputs_are_of_two_ranks():
    text = (NCCL_TESTS / "nccl_tests_all_gather.txt").read_text()
    assert len(re.findall(r"^#\s+Rank", text, re.MULTILINE)) == 2
