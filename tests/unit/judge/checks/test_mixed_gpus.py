from boxes import box, compute, found, gpu, run, unknown, with_gpus
from wiretax.judge.checks.mixed_gpus import check


def test_two_models_in_one_box_are_named_with_what_was_measured_of_each():
    machine = box(2, gpus=[gpu(0, name="NVIDIA GeForce RTX 5090"), gpu(1, name="NVIDIA GeForce RTX 3090")])
    finding = found(check, run(machine, compute(0, 200), compute(1, 70)))["gpus-differ"]
    assert "model" in finding.title
    assert "GPU 1 70.0 TFLOP/s" in finding.effect


def test_one_card_with_a_lower_power_limit_differs_and_the_cure_is_the_limit():
    finding = found(check, run(with_gpus(box(2), gpu0={"power_limit_watts": 300.0}, gpu1={"power_limit_watts": 450.0})))["gpus-differ"]
    assert "power limit" in finding.title and "nvidia-smi -pl" in finding.remedy


def test_less_memory_on_one_card_differs():
    assert "memory" in found(check, run(with_gpus(box(2), gpu0={"memory_bytes": 24 * 10**9})))["gpus-differ"].title


def test_equal_cards_do_not_differ_nor_do_the_few_megabytes_a_display_takes():
    assert found(check, run(with_gpus(box(4), gpu0={"memory_bytes": 479 * 10**8}))) == {}


def test_unread_cards_and_a_lost_one_are_not_compared():
    assert found(check, run(unknown(box(2)))) == {}
    assert found(check, run(with_gpus(box(2), gpu1={"name": "other", "status": "lost"}))) == {}
