from __future__ import annotations

from pathlib import Path

import pytest

import linux_trees as trees
from wiretax.probe.cgroup import cgroup_limits, memory_left_bytes, parse_cgroup


def test_version_2_takes_the_tightest_limit_of_the_group_and_those_above(tmp_path: Path) -> None:
    trees.write(
        tmp_path,
        {
            "proc/self/cgroup": "0::/system.slice/job.scope\n",
            "sys/fs/cgroup/system.slice/job.scope/memory.max": "max\n",
            "sys/fs/cgroup/system.slice/memory.max": "4096000\n",
            "sys/fs/cgroup/system.slice/job.scope/cpu.max": "300000 100000\n",
            "sys/fs/cgroup/system.slice/cpu.max": "max 100000\n",
        },
    )
    limits = cgroup_limits(tmp_path)
    assert (limits.cpus, limits.memory_bytes) == (3.0, 4096000)


def test_version_1_reads_its_controllers_and_knows_its_word_for_no_limit(tmp_path: Path) -> None:
    trees.write(
        tmp_path,
        {
            "proc/self/cgroup": "4:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "150000\n",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
        },
    )
    limits = cgroup_limits(tmp_path)
    assert (limits.cpus, limits.memory_bytes, limits.memory_reason) == (1.5, None, "no limit is set")


def test_a_path_of_the_host_that_the_container_does_not_have_falls_back_to_the_top(tmp_path: Path) -> None:
    trees.write(
        tmp_path,
        {
            "proc/self/cgroup": "5:memory:/docker/host-only-id\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "1000000\n",
        },
    )
    assert cgroup_limits(tmp_path).memory_bytes == 1000000


def test_without_control_groups_the_reason_says_so(tmp_path: Path) -> None:
    limits = cgroup_limits(tmp_path)
    assert (limits.cpus, limits.memory_bytes, limits.memory_reason) == (None, None, "no memory control group can be read")


@pytest.mark.parametrize("quota", ["-1", "0", "many"])
def test_a_quota_that_is_none_does_not_limit(tmp_path: Path, quota: str) -> None:
    trees.write(
        tmp_path,
        {
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": quota,
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
            "sys/fs/cgroup/cpu.max": f"{quota} 0",
        },
    )
    assert cgroup_limits(tmp_path).cpus is None


def test_a_group_path_cannot_lead_out_of_the_tree(tmp_path: Path) -> None:
    trees.write(tmp_path, {"proc/self/cgroup": "0::/../../etc\n", "sys/fs/cgroup/etc/memory.max": "77\n"})
    assert cgroup_limits(tmp_path).memory_bytes == 77


def test_lines_that_are_no_groups_are_passed_over() -> None:
    assert parse_cgroup("0::/a\n4:cpu,memory:/b:c\nnonsense\n5:pids:relative\n") == {"": "/a", "cpu": "/b:c", "memory": "/b:c"}
    assert parse_cgroup(None) == {}


def test_what_is_left_is_that_of_the_fullest_group_with_idle_file_cache_counted_as_free(tmp_path: Path) -> None:
    """A job of Slurm has its limit in a group of its own; and a container that has read much data is not out of memory."""
    trees.write(
        tmp_path,
        {
            "proc/self/cgroup": "0::/slurm/job_7\n",
            "sys/fs/cgroup/slurm/job_7/memory.max": "1000000\n",
            "sys/fs/cgroup/slurm/job_7/memory.current": "990000\n",
            "sys/fs/cgroup/slurm/job_7/memory.stat": "anon 100000\ninactive_file 700000\nactive_file 190000\n",
            "sys/fs/cgroup/slurm/memory.max": "5000000\n",
            "sys/fs/cgroup/slurm/memory.current": "2000000\n",
        },
    )
    assert memory_left_bytes(tmp_path) == 1000000 - 990000 + 700000


def test_what_is_left_of_a_version_1_group(tmp_path: Path) -> None:
    trees.write(
        tmp_path,
        {
            "proc/self/cgroup": "4:memory:/docker/abc\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "1000000\n",
            "sys/fs/cgroup/memory/memory.usage_in_bytes": "400000\n",
            "sys/fs/cgroup/memory/memory.stat": "total_inactive_file 50000\n",
        },
    )
    assert memory_left_bytes(tmp_path) == 650000


def test_without_a_limit_nothing_is_said_of_what_is_left(tmp_path: Path) -> None:
    trees.write(tmp_path, {"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"})
    assert memory_left_bytes(tmp_path) is None
