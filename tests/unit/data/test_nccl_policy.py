import pytest

from wiretax.data import nccl_policy


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("2.28.9+cuda13.0", (2, 28, 9)),
        ("2.28.9-1", (2, 28, 9)),
        ("22809", (2, 28, 9)),
        ("2708", (2, 7, 8)),
        ("2.19", (2, 19, 0)),
        ("NCCL version 2.20.5+cuda12.4", (2, 20, 5)),
        ("", None),
        (None, None),
        ("unknown", None),
    ],
)
def test_versions_are_read_in_all_their_spellings(text, version):
    assert nccl_policy.parse_version(text) == version


@pytest.mark.parametrize(
    ("version", "vendor", "gpus", "level"),
    [
        ("2.28.9", "intel", 2, "PXB"),
        ("2.28.9", "amd", 2, "SYS"),
        ("2.28.9", "amd", 3, "PXB"),
        ("2.23.4", "amd", 8, "PXB"),
        ("2.22.3", "amd", 8, "SYS"),
        ("2.22.3", "intel", 2, "PXB"),
        ("2.22.3", "arm", 2, "PXB"),
        ("2.28.9", None, 4, "PXB"),
        ("2.28.9", None, 2, None),
        ("2.22.3", None, 4, None),
        (None, "intel", 2, None),
        ("2.7.8", "intel", 2, None),
    ],
)
def test_the_distance_policy_follows_version_vendor_and_count(version, vendor, gpus, level):
    policy = nccl_policy.default_policy(version, vendor, gpus)
    assert (policy.level if policy else None) == level


@pytest.mark.parametrize(
    ("path", "level", "inside"),
    [
        ("NV18", "PIX", True),
        ("PIX", "PXB", True),
        ("NODE", "PHB", True),
        ("NODE", "PXB", False),
        ("SYS", "PHB", False),
        ("SYS", "SYS", True),
    ],
)
def test_distances_are_compared_in_nccls_own_terms(path, level, inside):
    assert nccl_policy.within(path, level) is inside


def test_an_unknown_distance_or_level_is_neither_inside_nor_outside():
    assert nccl_policy.within(None, "PXB") is None
    assert nccl_policy.within("ODD", "PXB") is None
    assert nccl_policy.within("PIX", "NODE") is None


@pytest.mark.parametrize(
    ("value", "level"), [("SYS", "SYS"), ("3", "PHB"), ("0", "LOC"), ("9", "SYS"), ("NODE", None), ("sys", None), (None, None)]
)
def test_a_users_level_is_read_as_nccl_reads_it(value, level):
    assert nccl_policy.user_level(value) == level


def test_a_known_fault_needs_version_gpu_and_symptom():
    assert nccl_policy.bugs("2.26.2", "12.0", "crash")[0].source.startswith("https://")
    assert nccl_policy.bugs("2.26.2", "9.0", "crash") == ()
    assert nccl_policy.bugs("2.31.2", "12.0", "crash") == ()
    assert nccl_policy.bugs("2.26.2", "12.0", "slow") == ()
    assert nccl_policy.bugs(None, "12.0", "crash") == ()


def test_a_fault_of_every_gpu_needs_the_version_alone():
    assert [bug.good_version for bug in nccl_policy.bugs("2.29.2", None, "hang")] == ["2.29.3"]
    assert nccl_policy.bugs("2.29.3", None, "hang") == ()


def test_a_fault_of_certain_machines_needs_their_name():
    assert nccl_policy.bugs("2.28.9", "10.0", "hang", gpu_names=["NVIDIA GB200"])
    assert nccl_policy.bugs("2.28.9", "10.0", "hang", gpu_names=["NVIDIA B200"]) == ()


def test_a_fault_between_hosts_is_not_told_of_one_host():
    assert nccl_policy.bugs("2.19.3", "9.0", "slow", several_hosts=True)
    assert nccl_policy.bugs("2.19.3", "9.0", "slow") == ()
