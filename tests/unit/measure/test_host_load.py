import pytest

from wiretax.measure.host_load import HostLoadMeter


class Proc:
    """A /proc of our own."""

    def __init__(self, folder):
        self.folder = folder
        self.cpu(0, 0, 0)
        (folder / "cpuinfo").write_text("processor : 0\ncpu MHz : 2000.0\n\nprocessor : 1\ncpu MHz : 3000.0\n")

    def cpu(self, busy, idle, steal):
        (self.folder / "stat").write_text(f"cpu  {busy} 0 0 {idle} 0 0 0 {steal} 0 0\ncpu0 1 2 3\n")

    def process(self, pid, ticks):
        (self.folder / str(pid)).mkdir(exist_ok=True)
        fields = ["S", *["0"] * 10, str(ticks), "0", *["0"] * 30]
        (self.folder / str(pid) / "stat").write_text(f"{pid} (a ) name) {' '.join(fields)}")


@pytest.fixture
def proc(tmp_path):
    return Proc(tmp_path)


def test_shares_of_all_processors_between_two_moments(proc):
    proc.process(7, 10)
    meter = HostLoadMeter([7], proc.folder)
    proc.cpu(60, 30, 10)
    proc.process(7, 50)
    load = meter.read()
    assert (load.busy_fraction, load.steal_fraction, load.other_busy_fraction) == (0.6, 0.1, 0.2)
    assert load.frequency_mhz == 2500.0
    assert load.missing == {}


def test_the_first_moment_can_be_renewed(proc):
    meter = HostLoadMeter([], proc.folder)
    proc.cpu(100, 0, 0)
    meter.start()
    proc.cpu(100, 100, 0)
    assert meter.read().busy_fraction == 0.0


def test_a_process_that_is_gone_leaves_only_the_share_of_others_unknown(proc):
    meter = HostLoadMeter([7], proc.folder)
    proc.cpu(50, 50, 0)
    load = meter.read()
    assert load.busy_fraction == 0.5
    assert load.other_busy_fraction is None
    assert "our own processes" in load.missing["other_busy_fraction"]


def test_a_moment_too_short_to_tell_says_so(proc):
    meter = HostLoadMeter([], proc.folder)
    proc.cpu(3, 3, 0)
    load = meter.read()
    assert load.busy_fraction is None
    assert load.missing["steal_fraction"] == "too short a time to tell"


def test_an_unreadable_proc_gives_reasons_for_everything(tmp_path):
    load = HostLoadMeter([], tmp_path).read()
    assert set(load.missing) == {"busy_fraction", "steal_fraction", "other_busy_fraction", "frequency_mhz"}
    assert all(load.missing.values())


def test_a_damaged_proc_gives_a_reason(proc):
    (proc.folder / "stat").write_text("cpu  1 2 3\n")
    (proc.folder / "cpuinfo").write_text("BogoMIPS : 50\n")
    load = HostLoadMeter([], proc.folder).read()
    assert "3 numbers" in load.missing["busy_fraction"]
    assert "ARM" in load.missing["frequency_mhz"]


def test_the_real_proc_is_understood():
    load = HostLoadMeter([]).read()
    assert load.missing.get("busy_fraction", "too short a time to tell") == "too short a time to tell"
