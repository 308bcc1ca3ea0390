"""What would stop every rank is found before any is started."""

import errno
import os
import socket

import pytest

from wiretax.launch import obstacles


def test_on_an_ordinary_host_there_is_none_and_nothing_is_left_behind(tmp_path):
    assert obstacles.obstacle(tmp_path) is None
    assert list(tmp_path.iterdir()) == []


def failing(error):
    def function(*_arguments, **_options):
        raise error

    return function


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_full_disk_a_quota_and_a_limit_on_files_are_told_with_the_folder(tmp_path, monkeypatch, number):
    monkeypatch.setattr(os, "posix_fallocate", failing(OSError(number, os.strerror(number))))
    (tmp_path / "run").mkdir()
    found = obstacles.obstacle(tmp_path / "run")
    assert found is not None
    assert found.startswith(f"{tmp_path} has no room")
    assert os.strerror(number) in found and "TMPDIR" in found
    assert list((tmp_path / "run").iterdir()) == []


def test_a_file_system_that_cannot_reserve_room_is_no_obstacle(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "posix_fallocate", failing(OSError(errno.EOPNOTSUPP, "not supported")))
    assert obstacles.obstacle(tmp_path) is None


def test_a_loopback_interface_that_is_down_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(socket, "create_connection", failing(OSError(errno.ENETUNREACH, "x")))
    assert "Network is unreachable" in obstacles.obstacle(tmp_path)
    assert "ip link set lo up" in obstacles.obstacle(tmp_path)


def test_a_proc_that_is_missing_or_anothers_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "readlink", failing(FileNotFoundError()))
    assert "/proc is not mounted" in obstacles.obstacle(tmp_path)
    monkeypatch.setattr(os, "readlink", lambda _path: "1")
    assert "another process namespace" in obstacles.obstacle(tmp_path)


def test_tight_limits_are_named_as_the_shell_shows_them(monkeypatch):
    limits = {"RLIMIT_NPROC": 8, "RLIMIT_NOFILE": 64, "RLIMIT_AS": 4 << 30}
    numbers = {getattr(obstacles.resource, name): soft for name, soft in limits.items()}
    monkeypatch.setattr(obstacles.resource, "getrlimit", lambda number: (numbers[number], -1))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert obstacles.tight_limits() == "ulimit -u is 8, ulimit -n is 64, ulimit -v is 4194304"
    monkeypatch.setattr(os, "geteuid", lambda: 0)  # root may start as many as it likes
    assert "ulimit -u" not in obstacles.tight_limits()


def test_roomy_limits_are_not_mentioned(monkeypatch):
    monkeypatch.setattr(obstacles.resource, "getrlimit", lambda _number: (obstacles.resource.RLIM_INFINITY, -1))
    assert obstacles.tight_limits() == ""
