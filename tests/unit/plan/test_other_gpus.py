import pytest

from profiles import profile
from wiretax.data.gpus import all_gpus, find_gpu
from wiretax.plan.other_gpus import REACHED, as_measured, matmul_flops_per_second, step_factor


def card(name):
    found = find_gpu(name)
    assert found is not None
    return found


def test_the_same_card_takes_the_same_time():
    assert step_factor(card("RTX 4090"), card("RTX 4090")).range.expected == 1


def test_products_scale_by_matrix_rates_and_the_rest_by_memory():
    factor = step_factor(card("A100 SXM4 80GB"), card("H100 SXM5"))
    matmul = 312 * 0.87 / (989 * 0.80)
    memory = 2039 / 3350

    assert factor.range.expected == pytest.approx(0.7 * matmul + 0.3 * memory, rel=1e-3)
    assert factor.range.low < min(matmul, memory) < max(matmul, memory) < factor.range.high
    assert "not measured" in factor.note


def test_there_and_back_is_about_where_one_started():
    there, back = step_factor(card("L40S"), card("H200 SXM")), step_factor(card("H200 SXM"), card("L40S"))

    assert there.range.low * back.range.low < 1 < there.range.high * back.range.high


def test_a_card_without_a_known_matrix_rate_cannot_be_scaled_to():
    unknown = next(gpu for gpu in all_gpus() if gpu.bf16_flops_per_second is None)

    assert matmul_flops_per_second(unknown) is None
    assert step_factor(card("RTX 4090"), unknown) is None
    assert as_measured(profile(), card("RTX 4090"), unknown) is None


def test_every_card_with_a_published_figure_exists():
    assert all(find_gpu(name) is not None for name in REACHED)


def test_the_profiles_own_rates_are_scaled_by_the_data_sheets():
    base = profile()
    (rates,) = as_measured(base, card("A100 SXM4 80GB"), card("H100 SXM5"))

    assert rates.matmul_flops_per_second == pytest.approx(base.matmul_flops_per_second * (989 * 0.80) / (312 * 0.87))
    assert rates.memory_bytes_per_second == pytest.approx(base.memory_bytes_per_second * 3350 / 2039)
