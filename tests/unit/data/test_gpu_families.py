import pytest

from wiretax.data.gpu_families import compute_capability, never_has_p2p_over_pcie


@pytest.mark.parametrize(
    ("name", "capability"),
    [
        ("NVIDIA GeForce RTX 5070 Ti", "12.0"),
        ("4090", "8.9"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "12.0"),
        ("NVIDIA H100 80GB HBM3", "9.0"),
        ("NVIDIA B200", "10.0"),
        ("NVIDIA GB300", "10.3"),
        ("Tesla V100-SXM2-16GB", "7.0"),
        ("NVIDIA A100-SXM4-40GB", "8.0"),
        ("NVIDIA RTX A6000", "8.6"),
        ("AMD Instinct MI300X", None),
        ("NVIDIA GeForce ...", None),
        ("", None),
        (None, None),
    ],
)
def test_a_name_tells_its_compute_capability(name, capability):
    assert compute_capability(name) == capability


@pytest.mark.parametrize(
    ("name", "never"),
    [
        ("NVIDIA GeForce RTX 4090", True),
        ("NVIDIA GeForce RTX 5090", True),
        ("NVIDIA RTX A6000", False),
        ("NVIDIA H100 PCIe", False),
        ("NVIDIA L40S", False),
        (None, False),
    ],
)
def test_families_without_peer_access_over_pcie(name, never):
    assert never_has_p2p_over_pcie(name) is never
