from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

import linux_trees as trees
from wiretax.probe import nccl_library as module
from wiretax.probe.nccl_library import NO_VERSION, find_nccl, loaded_nccl, nccl_version, parse_nccl_conf, read_nccl_conf


def build(path: Path, version: str | None) -> Path:
    """A real shared library that holds NCCL's version string among its constants, as libnccl does."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("NO C COMPILER: no library can be built to look for a version in. Install gcc.")
    path.parent.mkdir(parents=True, exist_ok=True)
    text = f"NCCL version {version}+cuda13.0" if version else "nothing to see"
    source = path.with_suffix(".c")
    source.write_text(f'const char version[] = "{text}"; const char* get(void) {{ return version; }}\n')
    subprocess.run([compiler, "-shared", "-fPIC", "-o", path, source], check=True)
    return path


@pytest.mark.parametrize("version", ["2.28.9", "2.4.8", "2.7"])
def test_the_version_is_read_from_the_constants_of_the_binary(tmp_path: Path, version: str) -> None:
    assert nccl_version(str(build(tmp_path / "libnccl.so.2", version))) == version


def test_a_library_without_the_string_has_no_version_but_a_reason(tmp_path: Path) -> None:
    path = build(tmp_path / "libnccl.so.2", None)
    assert nccl_version(str(path)) is None
    library = loaded_nccl(f"7f00-7f01 r-xp 00000000 08:01 42 {path}\n")
    assert library is not None
    assert (library.version, library.missing) == (None, {"version": NO_VERSION})


@pytest.mark.parametrize("content", [b"", b"\x7fELF\x02\x01", b"not a library", b"\x7fELF\x02\x01" + b"\xff" * 200])
def test_a_file_that_is_no_library_has_no_version(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "libnccl.so.2"
    path.write_bytes(content)
    assert nccl_version(str(path)) is None


def test_a_file_that_is_not_there_has_no_version(tmp_path: Path) -> None:
    assert nccl_version(str(tmp_path / "libnccl.so.2")) is None


def test_the_version_in_the_files_name_helps_where_the_constants_do_not(tmp_path: Path) -> None:
    real = build(tmp_path / "usr/lib/x86_64-linux-gnu/libnccl.so.2.19.3", None)
    (real.parent / "libnccl.so.2").symlink_to(real.name)
    (found,) = find_nccl(root=tmp_path, environment={}, search_path=())
    assert found.version == "2.19.3"


def test_every_place_is_searched_and_one_file_is_named_once(tmp_path: Path) -> None:
    wheel = build(tmp_path / "site/nvidia/nccl/lib/libnccl.so.2", "2.28.9")
    system = build(tmp_path / "usr/lib/x86_64-linux-gnu/libnccl.so.2.21.5", "2.21.5")
    (system.parent / "libnccl.so.2").symlink_to(system.name)
    (system.parent / "libnccl.so").symlink_to("libnccl.so.2")
    listed = build(tmp_path / "opt/custom/libnccl.so.2", "2.20.3")
    build(tmp_path / "conda/lib/libnccl.so.2", "2.18.1")
    preloaded = build(tmp_path / "preload/libnccl.so.2", "2.30.7")
    cached = build(tmp_path / "cached/libnccl.so.2", "2.17.1")
    trees.write(tmp_path, {"etc/ld.so.cache": b"glibc-ld.so.cache1.1\0" + str(cached).encode() + b"\0/usr/lib/libnccl-net.so\0"})
    (system.parent / "libnccl-net.so").write_bytes(b"")
    environment = {
        "LD_LIBRARY_PATH": f"{listed.parent}:",
        "CONDA_PREFIX": str(tmp_path / "conda"),
        "LD_PRELOAD": f"/lib/other.so {preloaded}",
    }
    found = find_nccl(root=tmp_path, environment=environment, search_path=[str(tmp_path / "site"), ""])
    assert [library.version for library in found] == ["2.30.7", "2.28.9", "2.20.3", "2.18.1", "2.21.5", "2.17.1"]
    assert found[1].path == str(wheel)


def test_torchs_own_folder_is_searched_too(tmp_path: Path) -> None:
    build(tmp_path / "torch/lib/libnccl.so.2", "2.27.5")
    (found,) = find_nccl(root=tmp_path / "none", environment={}, search_path=[str(tmp_path)])
    assert found.version == "2.27.5"


def test_nothing_found_is_an_empty_answer(tmp_path: Path) -> None:
    assert find_nccl(root=tmp_path, environment={}, search_path=[str(tmp_path / "[odd]")]) == ()


def test_the_loaded_library_is_the_one_in_the_maps_and_not_a_plugin(tmp_path: Path) -> None:
    path = build(tmp_path / "with space/libnccl.so.2", "2.28.9")
    maps = (
        "7f1a00000000-7f1a00001000 r--p 00000000 08:01 11 /usr/lib/libnccl-net.so\n"
        "7f1a00002000-7f1a00003000 rw-p 00000000 00:00 0 \n"
        f"7f1a00004000-7f1a00005000 r--p 00000000 08:01 12 {path}\n"
        f"7f1a00005000-7f1a00006000 r-xp 00001000 08:01 12 {path}\n"
    )
    library = loaded_nccl(maps)
    assert library is not None
    assert (library.path, library.version) == (str(path), "2.28.9")


def test_a_library_deleted_after_loading_is_still_named() -> None:
    library = loaded_nccl("7f00-7f01 r-xp 00000000 08:01 42 /gone/libnccl.so.2.28.9 (deleted)\n")
    assert library is not None
    assert (library.path, library.version) == ("/gone/libnccl.so.2.28.9", "2.28.9")


def test_a_process_without_nccl_has_none() -> None:
    assert loaded_nccl("7f00-7f01 r-xp 00000000 08:01 42 /usr/lib/libc.so.6\n") is None
    assert loaded_nccl("") is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"NCCL_P2P_DISABLE=1\n", {"NCCL_P2P_DISABLE": "1"}),
        (b"NCCL_A=1\nNCCL_A=2\n", {"NCCL_A": "1"}),
        (b"# NCCL_A=1\n #NCCL_B=2\n", {" #NCCL_B": "2"}),
        (b"NCCL_A = 1 # why\n", {"NCCL_A ": " 1 # why"}),
        (b"no equals sign\n\n=1\n", {}),
        (b"NCCL_A=x=y", {"NCCL_A": "x=y"}),
        (b"NCCL_A=1\r\n", {"NCCL_A": "1\r"}),
        (b"NCCL_A=1\0NCCL_B=2\n", {"NCCL_A": "1"}),
        (b"NCCL_A=\n", {"NCCL_A": ""}),
        (b"N" * 2000 + b"=1\n", {"N" * 1023: "1"}),
        (b"NCCL_A=" + b"v" * 2000, {"NCCL_A": "v" * 1023}),
        (b"NCCL_\xff=1\n", {"NCCL_�": "1"}),
    ],
)
def test_an_nccl_conf_is_read_as_nccl_reads_it(text: bytes, expected: dict[str, str]) -> None:
    assert parse_nccl_conf(text) == expected


def test_the_users_file_and_the_systems_are_both_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class User:
        pw_dir = str(tmp_path / "home")

    monkeypatch.setattr(module.pwd, "getpwuid", lambda uid: User)
    trees.write(tmp_path, {"home/.nccl.conf": "NCCL_DEBUG=INFO\n", "etc/nccl.conf": "NCCL_P2P_DISABLE=1\n"})
    assert read_nccl_conf(tmp_path, {}) == {"~/.nccl.conf:NCCL_DEBUG": "INFO", "/etc/nccl.conf:NCCL_P2P_DISABLE": "1"}


def test_a_named_file_takes_the_place_of_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class User:
        pw_dir = str(tmp_path / "home")

    monkeypatch.setattr(module.pwd, "getpwuid", lambda uid: User)
    trees.write(tmp_path, {"home/.nccl.conf": "NCCL_DEBUG=INFO\n", "mine.conf": "NCCL_ALGO=Ring\n"})
    named = str(tmp_path / "mine.conf")
    assert read_nccl_conf(tmp_path, {"NCCL_CONF_FILE": named}) == {f"{named}:NCCL_ALGO": "Ring"}
    assert read_nccl_conf(tmp_path, {"NCCL_CONF_FILE": str(tmp_path / "none")}) == {}


def test_a_user_without_a_name_has_no_file_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(uid: int) -> None:
        raise KeyError(uid)

    monkeypatch.setattr(module.pwd, "getpwuid", nobody)
    trees.write(tmp_path, {"etc/nccl.conf": "NCCL_DEBUG=WARN\n"})
    assert read_nccl_conf(tmp_path, {}) == {"/etc/nccl.conf:NCCL_DEBUG": "WARN"}
