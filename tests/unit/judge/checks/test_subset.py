from boxes import box, copy, found, gpu, run, unknown, wire
from wiretax.judge.checks.subset import check


def test_healthy_pairs_and_a_collapsed_whole_name_the_part_to_use():
    measured = [wire(gigabytes=21.0, gpus=(0, 2)), wire(gigabytes=20.0, gpus=(1, 3)), wire(gigabytes=2.0, world=4)]
    finding = found(check, run(box(4, "PIX"), *measured))["subset-collapse"]
    assert (finding.severity, finding.confidence) == ("problem", "certain")
    assert "export CUDA_VISIBLE_DEVICES=0,2" in finding.remedy


def test_a_whole_below_its_range_is_likely_even_without_smaller_sets():
    finding = found(check, run(box(4, "PIX"), wire(gigabytes=2.0, world=4)))["subset-collapse"]
    assert finding.confidence == "likely" and "their links allow" in finding.title


def test_a_whole_as_fast_as_its_parts_is_fine():
    assert found(check, run(box(4, "PIX"), wire(gigabytes=21.0, gpus=(0, 1)), wire(gigabytes=20.0, world=4))) == {}


def test_bridged_pairs_beside_a_pcie_whole_differ_by_design():
    path = {(0, 1): "NV4", (2, 3): "NV4", (0, 2): "SYS", (0, 3): "SYS", (1, 2): "SYS", (1, 3): "SYS"}
    machine = box(4, path, gpus=[gpu(k, nvlinks_active=4, compute_capability="8.6") for k in range(4)])
    assert found(check, run(machine, wire(gigabytes=45.0, gpus=(0, 1)), wire(gigabytes=10.0, world=4, kind="staged"))) == {}


def test_a_slow_pair_is_another_checks_business():
    measured = [copy(0, 1, 3.0), wire(gigabytes=2.0, world=4)]
    assert found(check, run(box(4, "PIX"), *measured)) == {}


def test_two_gpus_and_unread_machines_say_nothing():
    assert found(check, run(box(2), wire(gigabytes=0.5))) == {}
    assert found(check, run(unknown(box(4)), wire(gigabytes=0.5, world=4, kind=None))) == {}
