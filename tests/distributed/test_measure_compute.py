"""Compute and host copies by real CPU ranks."""

from __future__ import annotations

import pytest

from measure_ranks import run_ranks
from wiretax.measure import compute as compute_module
from wiretax.measure.compute import compute
from wiretax.measure.copies import host_copies
from wiretax.measure.overlap import overlap
from wiretax.measure.rank import OutOfTimeError
from wiretax.model.measurement import Compute, Copy, Incident


def test_every_cpu_rank_computes_alone_and_together(tmp_path):
    left = run_ranks(tmp_path, 2, compute, deadline_seconds=15, seconds=3.0)
    assert left.exit_codes == [0, 0], left.errors
    results = left.of(Compute)
    assert sorted((one.rank, one.together) for one in results) == [(0, False), (0, True), (1, False), (1, True)]
    for one in results:
        assert one.gpu is None
        assert one.dtype == "float32"
        assert one.matmul_flops_per_second > 1e9
        assert one.memory_bytes_per_second > 1e8
        assert len(one.matmul_samples_seconds) >= 3
        assert one.layer_seconds is None
        for name in ("layer_seconds", "head_seconds", "clocks_mhz", "throttle_reasons", "power_watts", "pcie"):
            assert one.missing[name] == "a CPU rank has no GPU"
    assert left.seconds < 12


def test_what_was_measured_before_the_deadline_is_kept_with_a_reason_for_the_rest(tmp_path):
    left = run_ranks(tmp_path, 1, late_compute, deadline_seconds=10)
    assert left.exit_codes == [4], left.errors
    (alone,) = left.of(Compute)
    assert alone.matmul_flops_per_second > 0
    assert alone.memory_bytes_per_second is None
    assert alone.missing["memory_bytes_per_second"] == "the time was spent before it was measured"


def late_compute(rank):
    """The deadline passes in the memory copy."""

    def too_late(*_):
        raise OutOfTimeError("too late")

    compute_module._Measurement._memory = too_late
    compute(rank, seconds=0.5)


def test_the_product_is_counted_as_two_operations_for_each_multiplication(tmp_path):
    left = run_ranks(tmp_path, 1, compute, deadline_seconds=15, seconds=1.0)
    (alone,) = left.of(Compute)
    samples = sorted(alone.matmul_samples_seconds)
    middle = (samples[(len(samples) - 1) // 2] + samples[len(samples) // 2]) / 2
    assert alone.matmul_flops_per_second == pytest.approx(2 * alone.matmul_size**3 / middle, rel=1e-4)


def test_host_memory_is_copied_by_each_rank_alone_and_by_all_together(tmp_path):
    left = run_ranks(tmp_path, 2, host_copies, deadline_seconds=15, seconds=3.0)
    assert left.exit_codes == [0, 0], left.errors
    copies = left.of(Copy)
    assert sorted(copy.concurrency for copy in copies) == ["all_pairs", "all_pairs", "alone", "alone"]
    for copy in copies:
        assert (copy.source_gpu, copy.target_gpu, copy.route, copy.direction) == (None, None, "host", "one_way")
        assert copy.verified is True
        assert copy.bandwidth_bytes_per_second > 1e8
        assert (copy.latency_seconds is None) == ("latency_seconds" in copy.missing)
    assert left.seconds < 12


def test_no_time_at_all_is_kept_as_skipped(tmp_path):
    left = run_ranks(tmp_path, 2, host_copies, deadline_seconds=4, seconds=0.0)
    assert left.exit_codes == [0, 0], left.errors
    (incident,) = left.of(Incident)
    assert (incident.kind, incident.stage) == ("skipped", "copies")
    assert "3 of 3" in incident.detail


def test_overlap_on_cpu_ranks_says_that_it_needs_gpus(tmp_path):
    left = run_ranks(tmp_path, 2, overlap, deadline_seconds=4)
    (incident,) = left.of(Incident)
    assert (incident.kind, incident.detail) == ("skipped", "needs a GPU")
