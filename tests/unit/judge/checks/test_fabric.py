import pytest

from boxes import box, found, run, unknown, with_gpus
from real_texts import smi_q, smi_q_gpu
from texts import text_run
from wiretax.judge.checks.fabric import check
from wiretax.model.observation import Observation


def fabric(state, status=None, **more):
    return with_gpus(box(2, "NV18"), gpu1={"fabric_state": state, "fabric_status": status, **more})


def test_a_registration_in_progress_is_critical():
    assert found(check, run(fabric("in_progress")))["fabric-not-ready"].severity == "critical"


def test_a_completed_registration_that_did_not_succeed_is_a_problem():
    assert found(check, run(fabric("completed", "Insufficient Resources")))["fabric-not-ready"].severity == "problem"
    assert found(check, run(fabric("completed", "success; health: degraded bandwidth")))["fabric-not-ready"].severity == "problem"


def test_a_registration_not_started_counts_only_on_gpus_with_nvlinks():
    assert "fabric-not-ready" in found(check, run(fabric("not_started", nvlinks_active=18)))
    assert found(check, run(fabric("not_started", nvlinks_active=0))) == {}


@pytest.mark.parametrize(("state", "status"), [("completed", "Success"), ("completed", None), ("not_supported", None), (None, None)])
def test_a_finished_an_unsupported_and_an_unread_fabric_are_fine(state, status):
    assert found(check, run(fabric(state, status))) == {}


def xid(number):
    return Observation(source="dmesg.txt", line=7, kind="xid", values={"code": number})


def test_an_nvlink_xid_in_the_kernel_log_is_named_with_its_line():
    finding = found(check, run(unknown(box(2)), observations=(xid(74), xid(79))))["nvlink-xid"]
    assert (finding.evidence[0].source, finding.evidence[0].line) == ("dmesg.txt", 7)


def test_another_xid_is_not_an_nvlink_fault():
    assert found(check, run(None, observations=(xid(79),))) == {}


HEALTH = """    Fabric
        State                             : Completed
        Status                            : Success
        Health
            Bandwidth                     : {}
            Route Unhealthy               : {}
            Incorrect Configuration       : {}
"""


def in_fabric(bandwidth="Full", route="False", configuration="None"):
    extra = HEALTH.format(bandwidth, route, configuration)
    return text_run(smi_q("580.10", *(smi_q_gpu(bus, "NVIDIA B200", extra=extra) for bus in ("1b", "1c"))))


@pytest.mark.parametrize(
    ("subject", "code", "words"),
    [
        (in_fabric(configuration="No Partition"), "nvswitch-partition-missing", "partition"),
        (in_fabric(bandwidth="Degraded"), "nvlink-partial", "GPUs 0 and 1 run with a part"),
        (in_fabric(route="True"), "fabric-not-ready", "GPUs 0 and 1 have a fault"),
        (in_fabric(configuration="Incorrect SysGuid"), "fabric-not-ready", "fault"),
    ],
)
def test_what_the_driver_says_of_a_gpus_place_in_the_fabric(subject, code, words):
    assert words in found(check, subject)[code].title


def test_a_healthy_place_in_the_fabric_is_no_finding():
    assert found(check, in_fabric()) == {}
