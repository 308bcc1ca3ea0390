import threading
from contextlib import nullcontext
from types import SimpleNamespace

from wiretax.measure.under_load import UnderLoad
from wiretax.probe.nvml_answer import LoadSample


class FakeNvml:
    """Gives samples from a list, then says that it has given all."""

    def __init__(self, samples):
        self.state, self.detail = "ok", None
        self.samples = list(samples)
        self.given = threading.Event()

    def read_under_load(self, gpu):
        sample = self.samples.pop(0)
        if not self.samples:
            self.samples.append(sample)
            self.given.set()
        assert gpu == sample.nvml_index
        return sample


def look(samples):
    nvml = FakeNvml(samples)
    with UnderLoad(samples[0].nvml_index, lambda: nullcontext(nvml)) as load:
        assert nvml.given.wait(10)
    return load


def sample(clock, reasons=(), width=16):
    return LoadSample(
        nvml_index=2,
        sm_clock_mhz=clock,
        throttle_reasons=reasons,
        power_watts=600.0,
        temperature_celsius=50.0 + clock / 1000,
        pcie_generation=5,
        pcie_width=width,
    )


def test_what_was_seen_during_the_load_is_summed_up():
    load = look([sample(1000, ("sw_power_cap",), 1), sample(1900, ("sw_power_cap",)), sample(1800, ("sw_power_cap",))])
    assert load.clock_mhz in (1800, 1850, 1900)
    assert load.power_watts == 600.0
    assert load.temperature_celsius == 51.9
    assert load.throttle_reasons == ("sw_power_cap",)
    assert (load.pcie.generation, load.pcie.width) == (5, 16)


def test_a_reason_that_hardly_ever_held_is_not_named():
    load = look([sample(1900, ("hw_slowdown",)), *[sample(1900)] * 9])
    assert load.throttle_reasons == ()


def test_a_reading_that_the_driver_does_not_give_has_its_reason():
    load = look([LoadSample(nvml_index=0, missing={"sm_clock_mhz": "not supported on this board", "pcie_width": "no permission"})])
    assert load.clock_mhz is None
    assert load.why("sm_clock_mhz") == "not supported on this board"
    assert load.pcie.missing["width"] == "no permission"


def test_without_nvml_everything_is_missing_with_its_word_for_it():
    session = SimpleNamespace(state="absent", detail="NVML was not found.")
    with UnderLoad(0, lambda: nullcontext(session)) as load:
        load._thread.join(10)
    assert load.clock_mhz is None
    assert load.throttle_reasons is None
    assert load.why("sm_clock_mhz") == "NVML was not found."


def test_a_cpu_rank_says_that_it_has_no_gpu():
    with UnderLoad(None) as load:
        pass
    assert load.power_watts is None
    assert load.why("power_watts") == "a CPU rank has no GPU"
    assert load.pcie.missing == {"generation": "a CPU rank has no GPU", "width": "a CPU rank has no GPU"}
