import pytest

from real_texts import devices, nccl, sweep
from texts import text_run
from wiretax.judge.rates import gains, rates

TABLE = "| config | all_reduce busbw GB/s |\n|---|---|\n| default | 2.0 |\n| NCCL_P2P_DISABLE=1 | 8.0 |\n"


def test_a_table_of_settings_gives_a_rate_a_row():
    found = rates(text_run(TABLE))
    assert [(one.settings, one.bytes_per_second, one.is_default) for one in found] == [
        ((), 2e9, True),
        ((("NCCL_P2P_DISABLE", "1"),), 8e9, False),
    ]
    (gain,) = gains(found)
    assert gain.factor == 4 and gain.after.has("NCCL_P2P_DISABLE", "1") and gain.after.evidence.line == 4


def test_a_sentence_is_about_the_gpus_that_it_names_once():
    found = rates(text_run("all_reduce busbw is 2.9 GB/s by default and 9.1 GB/s with NCCL_P2P_DISABLE=1 on 4x A40\n"))
    assert [one.num_gpus for one in found] == [4, 4]
    assert gains(found)[0].factor == pytest.approx(9.1 / 2.9)


def test_sweeps_are_told_apart_by_command_or_by_nccls_own_line():
    slow, fast = devices(2, "NVIDIA L40S") + sweep([(134217728, 4.0)], 2), devices(2, "NVIDIA L40S") + sweep([(134217728, 10.0)], 2)
    for set_by in ("$ NCCL_P2P_DISABLE=1 ./all_reduce_perf -g 2\n", f"{nccl()}NCCL_P2P_DISABLE set by environment to 1\n"):
        found = rates(text_run(slow + set_by + fast))
        assert [one.settings for one in found] == [(), (("NCCL_P2P_DISABLE", "1"),)]
        assert gains(found)[0].factor == pytest.approx(2.5, rel=0.01)


def test_different_operations_or_counts_are_not_compared():
    found = rates(
        text_run(
            devices(2, "A")
            + sweep([(134217728, 4.0)], 2)
            + "$ NCCL_P2P_DISABLE=1 ./p_perf\n"
            + devices(4, "A")
            + sweep([(134217728, 9.0)], 4)
        )
    )
    assert len(found) == 2 and gains(found) == ()


def test_bandwidths_of_nothing_named_are_no_rates():
    assert rates(text_run("the link has 25 GB/s\n")) == ()
