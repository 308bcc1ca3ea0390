from boxes import box, copy, found, incident, nccl, run, unknown, wire
from wiretax.judge.checks.shm import check

MIB64 = 64 * 2**20
STAGED = {"path": "PHB", "p2p": "GNS"}


def small(count=4, **values):
    return box(count, **{**STAGED, **values}, surroundings={"dev_shm_bytes": MIB64})


def test_a_failure_that_names_shared_memory_beside_a_small_mount_is_certain():
    event = incident("error", "wire:default", wire="default", detail="posix_fallocate failed : No space left on device")
    finding = found(check, run(small(), event))["dev-shm-too-small"]
    assert (finding.severity, finding.confidence) == ("problem", "certain")
    assert "--shm-size" in finding.remedy


def test_the_same_failure_with_an_unread_mount_is_likely():
    event = incident("error", "wire:default", detail="No space left on device")
    assert found(check, run(box(4), event))["dev-shm-too-small"].confidence == "likely"


def test_a_bus_error_counts_only_beside_a_small_mount():
    event = incident("rank_died", "wire:default", signal=7)
    assert "dev-shm-too-small" in found(check, run(small(), event))
    assert found(check, run(box(4), event)) == {}


def test_a_small_mount_that_might_not_suffice_is_possible_and_no_more():
    finding = found(check, run(small()))["dev-shm-too-small"]
    assert (finding.severity, finding.confidence) == ("info", "possible")


def test_a_small_mount_is_fine_where_peer_to_peer_works_or_the_staged_way_was_seen_to_work():
    assert found(check, run(small(p2p="OK"))) == {}
    assert "dev-shm-too-small" not in found(check, run(small(), wire("p2p_off", 10, world=4, kind="staged")))


def test_an_unread_mount_and_an_unread_machine_say_nothing():
    assert found(check, run(box(4, **STAGED))) == {}
    assert found(check, run(unknown(box(4)))) == {}


def measured(busbw, staged_copy, **values):
    return [wire(gigabytes=busbw, world=2, kind="staged", **values), copy(0, 1, staged_copy, "staged"), copy(1, 0, staged_copy, "staged")]


def test_a_copy_engine_far_ahead_of_nccls_own_way_is_worth_a_trial():
    finding = found(check, run(box(2, **STAGED), *measured(2.2, 20.0)))["shm-direct-slow"]
    assert finding.severity == "warning" and "NCCL_SHM_USE_CUDA_MEMCPY=1" in finding.remedy and "9.1x" in finding.effect


def test_a_healthy_staged_wire_gets_only_a_hint():
    findings = found(check, run(box(2, **STAGED), *measured(12.0, 20.0)))
    assert {code: finding.severity for code, finding in findings.items()} == {"shm-tuning": "info"}


def test_the_comparison_wire_of_a_machine_with_peer_access_is_not_judged():
    assert found(check, run(box(2), wire(gigabytes=25), wire("p2p_off", 2, kind="staged"), copy(0, 1, 20, "staged"))) == {}


def test_who_uses_the_copy_engine_already_is_not_told_to():
    machine = box(2, **STAGED, software=nccl("2.28.9", NCCL_SHM_USE_CUDA_MEMCPY="1"))
    assert found(check, run(machine, *measured(2.2, 20.0))) == {}
