from __future__ import annotations

from dataclasses import replace

import sample_runs
from builders import GpuPair, four_4090_machine, h200_machine, many_gpus, p2p, pairs
from builders import run as a_run
from wiretax.model.machine import Machine
from wiretax.model.measurement import PeerTruth
from wiretax.show.plain import UNICODE
from wiretax.show.terminal import as_text

DASH = UNICODE.dash


def shown(machine: Machine, width: int = 80) -> str:
    return as_text(a_run(machine, "inspect"), width)


def test_the_4090_box_says_that_p2p_is_unsupported_for_all_six_pairs_and_shows_its_matrix() -> None:
    text = shown(four_4090_machine("constructed"))
    assert "P2P is unsupported for all 6 pairs (CNS: the chipset does not support it)." in text
    lines = [line.split() for line in text.splitlines()]
    assert ["GPU0", DASH, "PHB", "SYS", "SYS"] in lines
    assert ["GPU3", "SYS", "SYS", "PHB", DASH] in lines
    assert ["P2P", "CNS", "CNS", "CNS"] in lines


def test_a_constructed_machine_is_never_shown_as_a_measurement() -> None:
    text = shown(four_4090_machine("constructed"))
    assert "CONSTRUCTED MACHINE, not a measurement: topology and NCCL log of a blog post" in " ".join(text.split())
    assert "nothing measured" in text
    assert "CONSTRUCTED" not in shown(four_4090_machine("live"))


def test_a_recorded_machine_is_said_not_to_be_this_one() -> None:
    assert "not this one" in shown(replace(h200_machine(), origin="recorded"))


def test_pairs_that_differ_are_counted_by_code() -> None:
    machine = four_4090_machine()
    mixed = tuple(replace(pair, p2p=p2p("OK")) if {pair.source_gpu, pair.target_gpu} == {0, 1} else pair for pair in machine.pairs)
    assert "P2P differs between the pairs: CNS 5, OK 1." in shown(replace(machine, pairs=mixed))


def test_read_and_write_that_differ_are_both_shown() -> None:
    machine = h200_machine()
    odd = tuple(replace(pair, p2p=replace(pair.p2p, write="CNS")) for pair in machine.pairs)
    assert "OK/CNS" in shown(replace(machine, pairs=odd))


def test_an_unread_status_is_unknown_with_its_reason_and_not_unsupported() -> None:
    machine = four_4090_machine()
    text = shown(replace(machine, pairs=pairs([["X", "PHB"], ["PHB", "X"]], None), gpus=machine.gpus[:2]))
    assert "Whether P2P is allowed is unknown: not read." in text
    assert "unsupported" not in text


def test_the_measured_figure_stands_under_the_claimed_path() -> None:
    lines = as_text(sample_runs.h200_pair(), 80).splitlines()
    row = next(k for k, line in enumerate(lines) if line.split() == ["GPU0", DASH, "NV18"])
    assert lines[row + 2].split() == ["direct", "GB/s", "383"]


def test_wrong_data_is_shouted() -> None:
    run = sample_runs.h200_pair()
    lie = (PeerTruth(source_gpu=0, target_gpu=1, outcome="wrong_data", num_bytes=(8,), detail="byte 4096 differs"),)
    text = as_text(replace(run, measurements=replace(run.measurements, peer_truth=lie)), 100)
    assert "GPU0 → GPU1: wrong data when one process wrote to the other (byte 4096 differs)." in text
    assert "OK ✗" in text


def test_a_pair_that_was_not_tried_is_not_called_proven() -> None:
    assert "read back unchanged" not in as_text(sample_runs.four_4090(), 100)


def test_slow_pairs_and_shared_uplinks_are_put_into_words() -> None:
    text = as_text(sample_runs.four_4090(), 100)
    assert "Far below the median of 13.1 GB/s staged: 0→1 4.00, 1→0 4.00 GB/s." in text
    assert "45 % of a pair alone" in text


def test_sixteen_gpus_at_80_columns_are_drawn_in_blocks_without_cutting() -> None:
    text = shown(many_gpus(16))
    assert text.count("GPU15") >= 3
    assert "…" not in text


def test_sixty_four_gpus_become_a_summary_by_class() -> None:
    text = shown(many_gpus(64))
    lines = [line.split() for line in text.splitlines()]
    assert any(line[:2] == ["NV18", "224"] for line in lines)
    assert any(line[:2] == ["SYS", "1792"] for line in lines)
    assert "GPU63" not in text.split("GPUs  ")[0]


def test_a_pair_the_driver_did_not_list_is_a_question_mark() -> None:
    machine = h200_machine()
    text = shown(replace(machine, pairs=(GpuPair(source_gpu=0, target_gpu=1, path="NV18", p2p=p2p("OK")),)))
    assert any(line.split() == ["GPU1", "?", DASH] for line in text.splitlines())


def test_a_lost_gpu_is_named() -> None:
    machine = h200_machine()
    lost = (machine.gpus[0], replace(machine.gpus[1], status="lost", status_reason="fell off the bus"))
    text = shown(replace(machine, gpus=lost))
    assert "GPU 1 did not answer." in text
    assert "lost: fell off the bus" in " ".join(text.split())
