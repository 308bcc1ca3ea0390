from __future__ import annotations

import pytest

from wiretax.data.gpus import all_gpus, close_matches, find_gpu
from wiretax.model.reading import not_finite, unexplained


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("GeForce RTX 4090", "RTX 4090"),
        ("RTX 4090", "RTX 4090"),
        ("rtx-4090", "RTX 4090"),
        ("4090", "RTX 4090"),
        ("NVIDIA H200", "H200 SXM"),
        ("NVIDIA H200 NVL", "H200 NVL"),
        ("NVIDIA H100 80GB HBM3", "H100 SXM5"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("NVIDIA H100 NVL", "H100 NVL"),
        ("A100-SXM4-40GB", "A100 SXM4 40GB"),
        ("NVIDIA A100 80GB PCIe", "A100 PCIe 80GB"),
        ("NVIDIA RTX A6000", "RTX A6000"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada"),
        ("Tesla T4", "T4"),
        ("AMD Instinct MI300X", "MI300X"),
    ],
)
def test_a_gpu_is_found_by_what_drivers_and_people_call_it(name: str, found: str) -> None:
    facts = find_gpu(name)
    assert facts is not None
    assert facts.name == found


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA GeForce RTX 5070",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
        "GRID A100X-40C",
        "NVIDIA H200 141GB",
        "A100",
        "",
    ],
)
def test_an_unknown_gpu_is_none_and_never_its_neighbour(name: str) -> None:
    assert find_gpu(name) is None


def test_close_matches_are_offered_best_first() -> None:
    assert "RTX 4090" in close_matches("NVIDIA GeForce RTX 4090 Laptop GPU") + close_matches("RTX 4091")
    assert close_matches("H2000")[0] == "H200 SXM"
    assert close_matches("completely different") == ()
    assert len(close_matches("RTX 40", limit=2)) <= 2


def test_no_two_gpus_share_a_name() -> None:
    seen: dict[str, str] = {}
    for gpu in all_gpus():
        for name in (gpu.name, *gpu.driver_names, *gpu.aliases):
            assert seen.setdefault(name, gpu.name) == gpu.name
            assert find_gpu(name) is gpu


def test_every_fact_has_a_source_a_date_and_every_gap_a_reason() -> None:
    for gpu in all_gpus():
        assert list(unexplained(gpu)) == [], gpu.name
        assert list(not_finite(gpu)) == []
        assert gpu.source
        assert gpu.date == "2026-11-30"


def test_the_figures_are_of_one_kind_and_plausible() -> None:
    for gpu in all_gpus():
        assert 8e9 < gpu.memory_bytes < 300e9, gpu.name
        assert 2e11 < gpu.memory_bytes_per_second < 1e13, gpu.name
        assert gpu.pcie_generation in (3, 4, 5)
        assert gpu.pcie_width in (8, 16)
        if gpu.bf16_flops_per_second is not None:
            assert 2e13 < gpu.bf16_flops_per_second < 3e15, gpu.name
            # Blackwell GeForce and everything since Ampere does tf32 at half the bf16 rate.
            assert gpu.tf32_flops_per_second == pytest.approx(gpu.bf16_flops_per_second / 2, rel=0.02)
        if gpu.nvlink_links is not None:
            per_link = (gpu.nvlink_bytes_per_second or 0) / gpu.nvlink_links
            assert per_link in (14.0625e9, 25e9, 50e9), gpu.name


@pytest.mark.parametrize(
    ("name", "capability", "nvlink", "p2p"),
    [
        ("RTX 3090", "8.6", 3, False),
        ("RTX 4090", "8.9", None, False),
        ("RTX 5090", "12.0", None, False),
        ("L4", "8.9", None, None),
        ("L40S", "8.9", None, True),
        ("A100 PCIe 40GB", "8.0", 3, True),
        ("H200 SXM", "9.0", 4, True),
        ("B200 SXM", "10.0", 5, True),
        ("MI300X", None, None, True),
    ],
)
def test_capability_nvlink_and_stock_p2p_are_told(name: str, capability: str | None, nvlink: int | None, p2p: bool | None) -> None:
    facts = find_gpu(name)
    assert facts is not None
    assert (facts.compute_capability, facts.nvlink_generation, facts.stock_driver_p2p_over_pcie) == (capability, nvlink, p2p)


def test_the_h200s_memory_is_what_the_recorded_machine_reports() -> None:
    from wiretax.probe.recorded import shipped_machine

    facts = find_gpu("NVIDIA H200")
    assert facts is not None
    assert {gpu.memory_bytes for gpu in shipped_machine("h200x2").gpus} == {facts.memory_bytes}
