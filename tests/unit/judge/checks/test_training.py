import pytest

from boxes import box, found, run
from real_texts import listing, pairs, topo
from texts import text_run
from wiretax.judge.checks.training import check


def test_several_gpus_that_do_less_than_one_are_bound_by_communication():
    finding = found(check, text_run("throughput: 1 GPU 15.4 samples/s | 2 GPU 4.5 samples/s\n", topo(pairs(2, "PHB"))))[
        "communication-bound"
    ]
    assert finding.severity == "problem" and "0.58x" in finding.title and "no_sync" in finding.remedy


def test_the_kindest_reading_decides():
    assert found(check, text_run("1 GPU: 120 samples/s\n2 GPUs: 118 samples/s\n")) == {}
    assert "communication-bound" in found(check, text_run("1 GPU: 120 samples/s\n2 GPUs: 118 samples/s total\n"))


def test_a_reading_that_cannot_be_is_not_the_kindest():
    text = "| GPUs | tokens/s |\n|---|---|\n| 1 | 14200 |\n| 4 | 21000 |\n"
    assert "1.5x" in found(check, text_run(text))["communication-bound"].title


@pytest.mark.parametrize(
    ("texts", "code"),
    [
        (("FSDP FULL_SHARD training: 1 GPU 2400 tok/s, 2 GPU 900 tok/s\n", topo(pairs(2, "SYS"))), "fsdp-over-pcie"),
        (("tensor parallel: TP=1 42 tok/s, TP=2 23 tok/s\n", topo(pairs(2, "SYS"))), "tp-over-pcie"),
        (("TP=4 gives 11 tok/s, TP=2 gives 19 tok/s\n", topo(pairs(4, "NODE"))), "tp-over-pcie"),
    ],
)
def test_a_strategy_that_asks_too_much_of_pcie_is_named(texts, code):
    assert found(check, text_run(*texts))[code].confidence == "likely"


@pytest.mark.parametrize(
    "text", ["FSDP FULL_SHARD training: 1 GPU 2400 tok/s, 2 GPU 900 tok/s\n", "tensor parallel: TP=1 42 tok/s, TP=2 23 tok/s\n"]
)
def test_over_nvlink_pcie_is_not_blamed(text):
    assert not {"fsdp-over-pcie", "tp-over-pcie"} & found(check, text_run(text, topo(pairs(2, "NV12")))).keys()


def test_where_the_wire_is_unknown_sharding_is_only_bound_by_communication():
    assert "communication-bound" in found(check, text_run("FSDP training: 1 GPU 2400 tok/s, 2 GPU 900 tok/s\n"))


@pytest.mark.parametrize(
    "text",
    [
        "Epoch: [0][  10/5005]\tTime  1.102 ( 1.098)\tData  0.871 ( 0.866)\tLoss 6.9 (6.9)\n",
        "All 8 GPUs: utilization drops to 0 % and spikes to 100 % together. Moving the dataset from NFS to NVMe fixed it.\n",
    ],
)
def test_gpus_that_wait_for_data_are_judged_before_any_wire(text):
    findings = found(check, text_run(text, "1 GPU: 120 samples/s\n2 GPUs: 80 samples/s total\n"))
    assert findings.keys() == {"input-pipeline-bound"}


def test_an_exchange_in_the_optimizer_step_does_not_overlap():
    text = "optimizer step (incl. gradient sync): 1 GPU 19 ms -> 2 GPU 400 ms\n"
    assert found(check, text_run(text))["no-overlap"].confidence == "possible"


def test_a_small_batch_beside_slow_steps_is_named():
    text = (
        "***** Running training *****\n  Instantaneous batch size per device = 1\nthroughput: 1 GPU 15.4 samples/s | 2 GPU 4.5 samples/s\n"
    )
    assert "batch-too-small" in found(check, text_run(text))


@pytest.mark.parametrize(
    "subject",
    [
        text_run("1 GPU: 120 samples/s\n2 GPUs: 231 samples/s total\n4 GPUs: 447 samples/s total\n"),
        text_run("8 GPUs: 900 samples/s total\n", listing("NVIDIA A40")),
        text_run("it trains\n"),
        run(box(2)),
    ],
    ids=["scales", "nothing to compare", "silence", "live"],
)
def test_good_scaling_and_single_figures_are_no_finding(subject):
    assert found(check, subject) == {}
