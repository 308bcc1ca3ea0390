from dataclasses import replace

import pytest

from boxes import box, copy, host_copies, nccl, run, unknown, wire, with_gpus
from wiretax.judge import facts
from wiretax.model.machine import NcclLibrary


def visible(count, current=None, **gpus):
    return with_gpus(box(count, surroundings={"cuda_visible_devices": current}), **gpus)


@pytest.mark.parametrize(
    ("machine", "chosen", "text"),
    [
        (visible(4), (0, 2), "CUDA_VISIBLE_DEVICES=0,2"),
        (visible(2, "4,6", gpu0={"cuda_ordinal": 0}, gpu1={"cuda_ordinal": 1}), (1,), "CUDA_VISIBLE_DEVICES=6"),
        (visible(2, "GPU-aa,GPU-bb"), (0, 1), "CUDA_VISIBLE_DEVICES=GPU-aa,GPU-bb"),
        (visible(2, "0", gpu1={"cuda_ordinal": None}), (0, 1), "CUDA_VISIBLE_DEVICES=0,GPU-00000001-0000-0000-0000-000000000000"),
        (visible(2, gpu0={"cuda_ordinal": 1}, gpu1={"cuda_ordinal": 0}), (0,), "CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=0"),
        (visible(2, gpu0={"name": "other"}), (0,), "CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=0"),
        (None, (3,), "CUDA_VISIBLE_DEVICES=3"),
    ],
    ids=["plain", "renumbered", "uuids", "hidden", "cuda counts otherwise", "mixed models", "no machine"],
)
def test_what_the_user_must_type_to_use_these_gpus(machine, chosen, text):
    assert facts.visible_devices(machine, chosen) == text


@pytest.mark.parametrize(
    ("code", "access", "allowed"),
    [
        ("OK", None, True),
        ("OK", False, False),
        ("CNS", True, False),
        ("U", None, None),
        (None, None, None),
        (None, True, True),
        (None, False, False),
        ("U", False, False),
    ],
)
def test_the_drivers_refusal_wins_and_its_silence_is_filled_by_cuda(code, access, allowed):
    machine = box(2, "PHB", code)
    machine = replace(machine, pairs=tuple(replace(pair, peer_access=access) for pair in machine.pairs))
    assert facts.p2p_allowed(machine, 0, 1) is allowed


def test_a_refusal_in_one_direction_refuses_the_pair():
    machine = box(2, "PHB", "OK")
    first, second = machine.pairs
    machine = replace(machine, pairs=(first, replace(second, p2p=replace(second.p2p, write="GNS"))))
    assert facts.p2p_allowed(machine, 0, 1) is False


def test_the_environment_wins_over_a_configuration_file():
    software = {
        **nccl("2.28.9", NCCL_P2P_LEVEL="SYS"),
        "nccl_conf": {"/etc/nccl.conf:NCCL_P2P_LEVEL": "LOC", "/etc/nccl.conf:NCCL_DEBUG": "INFO"},
    }
    found = run(box(2, software=software))
    assert facts.nccl_setting(found, "NCCL_P2P_LEVEL") == ("SYS", "the environment (NCCL_P2P_LEVEL=SYS)")
    assert facts.nccl_setting(found, "NCCL_DEBUG")[1].startswith("/etc/nccl.conf")
    assert facts.nccl_setting(found, "NCCL_NET") is None


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("P2P/CUMEM/read", "p2p"),
        ("P2P/direct pointer", "p2p"),
        ("P2P/indirect", "p2p"),
        ("direct shared memory", "staged"),
        ("SHM/CE/direct", "staged"),
        ("NET/IB/0/GDRDMA", "net"),
        ("NET/AWS Libfabric/0", "net"),
        ("gloo/tcp", "gloo"),
        ("something new", None),
        (None, None),
    ],
)
def test_transports_are_told_apart_in_all_of_nccls_spellings(name, kind):
    assert facts.transport_class(name) == kind


def test_the_headline_is_the_best_of_the_large_sizes_and_not_of_all():
    small = wire(gigabytes=90.0, num_bytes=2**24)
    half, full = wire(gigabytes=22.0, num_bytes=2**27), wire(gigabytes=20.0, num_bytes=2**28)
    assert facts.headline([small, half, full])[1].num_bytes == 2**27
    assert facts.headline([wire(gigabytes=1.0, num_bytes=2**20)]) is None


def test_the_users_wire_is_the_one_asked_for_whatever_it_was_renamed_to_at_the_largest_size():
    measured = [
        wire(world=2),
        wire("p2p_off", 5, world=4, kind="staged", wire_requested="default"),
        wire("socket", 1, world=4, kind="socket"),
    ]
    assert [c.wire for c in facts.user_collectives(run(box(4), *measured))] == ["p2p_off"]


def test_the_loaded_library_counts_and_several_on_disk_do_not():
    several = tuple(NcclLibrary(path=f"/{v}", version=v) for v in ("2.20.5", "2.28.9"))
    assert facts.nccl_version(run(box(2))) == "2.28.9"
    assert facts.nccl_version(run(box(2, software={"nccl_loaded": None, "nccl_found": several}))) is None
    assert facts.nccl_version(run(box(2, software={"nccl_loaded": None, "nccl_found": several[:1]}))) == "2.20.5"
    assert facts.nccl_version(run(unknown(box(2)))) is None


def test_a_long_list_of_pairs_is_cut_with_its_true_length():
    pairs = [(a, b) for a in range(8) for b in range(8) if a < b]
    assert facts.pairs_text(pairs).endswith("and 16 more")
    assert facts.pairs_text([(1, 0), (0, 1), (2, 3)]) == "0-1, 2-3"


def test_the_largest_copy_of_a_pair_counts_and_copies_within_a_gpu_or_to_the_host_are_none():
    found = run(box(2), copy(0, 1, 5, num_bytes=16), copy(0, 1, 20, num_bytes=2**28), copy(1, 0, None), *host_copies(25, 24))
    assert {pair: entry.bandwidth_bytes_per_second for pair, entry in facts.pair_copies(found, route="direct").items()} == {(0, 1): 20e9}
    assert facts.host_copies(found, 1) == (24e9, 24e9)


def test_the_windows_subsystem_is_no_virtual_machine_that_invents_slots():
    assert not facts.in_virtual_machine(box(2, surroundings={"virtual_machine": "wsl2"}))
    assert facts.in_virtual_machine(box(2, surroundings={"virtual_machine": "kvm"}))
