from dataclasses import replace

import pytest

from boxes import box, explained, found, gpu, run, unknown, wire
from wiretax.judge.checks.host import check
from wiretax.model.measurement import HostLoad
from wiretax.model.training import StepTiming, Training


def load(**values):
    return explained(HostLoad, **values)


def test_stolen_time_and_busy_neighbours_are_named_with_what_they_disturbed():
    measured = [wire(host_load=load(steal_fraction=0.2, other_busy_fraction=0.5)), wire("socket", 3, host_load=load(steal_fraction=0.0))]
    finding = found(check, run(box(2), *measured))["host-noisy"]
    assert "20 %" in finding.evidence[0].text and "all_reduce over default" in finding.evidence[0].text
    assert "1 of 2 kinds" in finding.evidence[2].text


def test_a_disturbed_training_step_is_named_too():
    step = StepTiming(
        strategy="ddp",
        num_gpus=2,
        wire="default",
        workload="w",
        batch_per_gpu=1,
        step_seconds=1.0,
        samples_per_second=2.0,
        host_load=load(other_busy_fraction=0.6),
    )
    finding = found(check, replace(run(box(2), wire(host_load=load(other_busy_fraction=0.0))), training=Training(steps=(step,))))[
        "host-noisy"
    ]
    assert "60 %" in finding.evidence[0].text and "training on 2 ranks" in finding.evidence[0].text


@pytest.mark.parametrize("state", [load(steal_fraction=0.01, other_busy_fraction=0.05, busy_fraction=0.9), load(), None])
def test_our_own_load_a_quiet_host_and_an_unread_one_are_not_noise(state):
    assert found(check, run(box(2), wire(host_load=state))) == {}


def test_more_gpus_than_usable_cpus_is_a_warning():
    assert found(check, run(box(4, surroundings={"cpus_usable": 2, "cpus_total": 64})))["too-few-cpus"].severity == "warning"
    assert found(check, run(box(4, surroundings={"cpus_usable": 16}))) == {}


def test_cpus_of_one_node_beside_gpus_of_two_are_a_possible_mismatch():
    machine = box(2, gpus=[gpu(0, numa_node=0), gpu(1, numa_node=1)], surroundings={"cpus_usable": 16, "cpus_total": 64, "numa_nodes": 2})
    finding = found(check, run(machine))["cpu-affinity-mismatch"]
    assert (finding.severity, finding.confidence) == ("info", "possible")
    wide = box(2, gpus=[gpu(0, numa_node=0), gpu(1, numa_node=1)], surroundings={"cpus_usable": 64, "cpus_total": 64, "numa_nodes": 2})
    assert found(check, run(wide)) == {}


def test_a_virtual_machine_that_shows_one_letter_for_all_pairs_hides_the_truth():
    machine = box(4, "PHB", surroundings={"virtual_machine": "kvm"})
    assert "PHB" in found(check, run(machine))["vm-topology-hidden"].title


@pytest.mark.parametrize(
    "machine",
    [
        box(4, "NV18", surroundings={"virtual_machine": "kvm"}),
        box(4, {(0, 1): "PIX", (2, 3): "SYS"}, surroundings={"virtual_machine": "kvm"}),
        box(4, "PHB"),
        box(4, "PHB", surroundings={"virtual_machine": None}),
        unknown(box(4)),
        None,
    ],
    ids=["nvlink", "letters differ", "bare metal", "not known", "nothing read", "no machine"],
)
def test_links_that_are_seen_or_unknown_hide_nothing(machine):
    assert found(check, run(machine)) == {}
