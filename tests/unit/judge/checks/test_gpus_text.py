import pytest

from boxes import box, found, gpu, run
from texts import text_run
from wiretax.judge.checks.gpus_text import check

STATE = "index, name, utilization.gpu [%], clocks.sm [MHz], power.draw [W], power.limit [W], temperature.gpu, clocks_event_reasons.{}\n"


def state(reason: str, *rows: str) -> str:
    return STATE.format(reason) + "".join(f"{row}\n" for row in rows)


def test_a_hot_gpu_among_cool_equals_is_the_straggler():
    text = state(
        "hw_thermal_slowdown",
        "0, NVIDIA GeForce RTX 3090, 100 %, 1800 MHz, 340 W, 350 W, 66, Not Active",
        "1, NVIDIA GeForce RTX 3090, 100 %, 900 MHz, 180 W, 350 W, 93, Active",
    )
    finding = found(check, text_run(text))["straggler-thermal"]
    assert "GPU 1" in finding.title and "93 C" in finding.evidence[0].text


def test_a_power_cap_counts_only_with_a_lower_clock():
    rows = ["0, NVIDIA A40, 100 %, {} MHz, 290 W, 300 W, 66, Active", "1, NVIDIA A40, 100 %, 1700 MHz, 250 W, 300 W, 60, Not Active"]
    assert "straggler-power" in found(check, text_run(state("sw_power_cap", rows[0].format(1300), rows[1])))
    assert found(check, text_run(state("sw_power_cap", rows[0].format(1690), rows[1]))) == {}


def test_a_framework_that_finds_different_cards_is_believed():
    text = (
        "Detected different devices in the system: NVIDIA RTX A6000, NVIDIA GeForce RTX 3090. Please make sure to set CUDA_DEVICE_ORDER.\n"
    )
    assert found(check, text_run(text))["gpus-differ"].confidence == "certain"


def test_a_card_whose_own_memory_is_slow_differs_from_the_others():
    text = (
        "Unidirectional P2P=Disabled Bandwidth Matrix (GB/s)\n   D\\D     0      1      2 \n"
        "     0 830.00  10.00  10.00 \n     1  10.00 831.00  10.00 \n     2  10.00  10.00 310.00 \n"
    )
    finding = found(check, text_run(text))["gpus-differ"]
    assert "GPU 2 copies in its own memory" in finding.title and finding.confidence == "likely"


def test_an_engine_without_its_own_all_reduce_is_a_note():
    text = "WARNING [custom_all_reduce.py:118] Custom allreduce is disabled because it's not supported on more than two PCIe-only GPUs.\n"
    finding = found(check, text_run(text))["custom-all-reduce-off"]
    assert finding.severity == "info" and "without NVLink" in finding.title


@pytest.mark.parametrize(
    "subject",
    [
        text_run(
            state(
                "hw_thermal_slowdown",
                "0, NVIDIA A40, 100 %, 1700 MHz, 290 W, 300 W, 80, Active",
                "1, NVIDIA A40, 100 %, 1700 MHz, 290 W, 300 W, 80, Active",
            )
        ),
        text_run(
            state(
                "hw_thermal_slowdown",
                "0, NVIDIA A40, 0 %, 210 MHz, 30 W, 300 W, 40, Active",
                "1, NVIDIA A40, 0 %, 210 MHz, 30 W, 300 W, 40, Not Active",
            )
        ),
        text_run("index, name\n0, NVIDIA A40\n1, NVIDIA A40\n"),
        run(box(2, gpus=(gpu(0), gpu(1)))),
    ],
    ids=["both hot", "idle", "no state", "live"],
)
def test_equal_idle_and_unread_gpus_are_no_finding(subject):
    assert found(check, subject) == {}
