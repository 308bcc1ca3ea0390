"""The job: every kind of input there is, and what the document says of it."""

from __future__ import annotations

import gzip
import io
import os
from pathlib import Path

import pytest

from diagnosed import assert_complete
from real_texts import head, listing, nccl, pairs, ring, topo
from wiretax.jobs.diagnose import diagnose, redacted, unreadable
from wiretax.store.codec import decode_run, encode

H200 = Path(__file__).parents[2] / "data" / "h200x2"
SOUND = topo(pairs(2, "NV4"))


def written(folder: Path, **texts: str) -> list[str]:
    names = []
    for name, text in texts.items():
        path = folder / f"{name}.txt"
        path.write_text(text)
        names.append(str(path))
    return names


def codes(files: list[str]) -> dict[str, str]:
    return {finding.code: finding.severity for finding in diagnose(files).findings}


def test_the_recorded_h200_pair_is_healthy_as_it_came() -> None:
    run = diagnose([str(H200 / name) for name in ("nccl_default.1679.log", "nccl_default.1680.log")])
    assert [finding.code for finding in run.findings if finding.severity != "info"] == []
    assert "healthy" in {finding.code for finding in run.findings}
    assert_complete(run)


def test_the_recorded_pair_without_peer_to_peer_names_the_variable() -> None:
    found = codes([str(H200 / name) for name in ("nccl_shm.1778.log", "nccl_shm.1779.log")])
    assert found["p2p-disabled-by-environment"] == "problem"


def test_the_recorded_pair_over_sockets_names_both_variables() -> None:
    run = diagnose([str(H200 / name) for name in ("nccl_net.1880.log", "nccl_net.1881.log")])
    found = {finding.code: finding for finding in run.findings}
    assert found["shm-disabled-by-environment"].title.startswith(
        "GPUs of one host talk over sockets, because NCCL_P2P_DISABLE=1 and NCCL_SHM"
    )
    assert "isolated-ranks-tcp" not in found and "sockets-between-hosts" not in found


def test_the_recorded_sweeps_are_judged_by_what_such_links_reach() -> None:
    assert codes([str(H200 / "host_and_nvidia_smi.txt"), str(H200 / "nccl_tests_all_reduce_default.txt")]).get("healthy") == "info"


def test_order_does_not_matter(tmp_path: Path) -> None:
    files = written(tmp_path, a=topo(pairs(4, "SYS", p01="PHB", p23="PHB")), b=head("2.21.5") + ring(4, "SHM/direct/direct"))
    one, other = diagnose(files), diagnose(files[::-1])
    assert {f.code for f in one.findings} == {f.code for f in other.findings}


def test_several_texts_may_share_a_file(tmp_path: Path) -> None:
    (file,) = written(tmp_path, all=listing("NVIDIA RTX A6000", "NVIDIA RTX A6000") + SOUND + head("2.21.5") + ring(2, "P2P/IPC"))
    run = diagnose([file])
    assert run.machine is not None and run.machine.gpus[0].name == "NVIDIA RTX A6000" and run.parts == ()
    assert "healthy" in {finding.code for finding in run.findings}


def test_standard_input_is_traced_to_its_lines() -> None:
    run = diagnose(["-"], stdin=io.BytesIO(("\n\n" + SOUND).encode()))
    healthy = next(finding for finding in run.findings if finding.code == "healthy")
    assert any(line.source == "-" and line.line == 4 and line.text.startswith("GPU0") for line in healthy.evidence)


def test_a_statement_about_the_machine_comes_with_its_line(tmp_path: Path) -> None:
    (file,) = written(tmp_path, topo=topo(pairs(4, "SYS", p01="NV4", p23="NV4"), ansi=False))
    islands = next(finding for finding in diagnose([file]).findings if finding.code == "nvlink-islands")
    lines = [line for line in islands.evidence if line.source == file]
    assert lines and lines[0].line == 2 and lines[0].text.startswith("GPU0")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("empty", b""),
        ("picture.png", b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 8),
        ("noise", os.urandom(4096)),
        ("broken.gz", gzip.compress(SOUND.encode())[:-20]),
    ],
)
def test_what_cannot_be_read_is_a_note_and_the_others_are_judged(tmp_path: Path, name: str, content: bytes) -> None:
    bad = tmp_path / name
    bad.write_bytes(content)
    run = diagnose([str(bad), *written(tmp_path, good=SOUND)])
    assert [note.source for note in unreadable(run)] == [str(bad)]
    assert "healthy" in {finding.code for finding in run.findings}
    assert decode_run(encode(run), "document") == run


@pytest.mark.parametrize("name", ["missing.txt", "."])
def test_files_that_are_not_there_or_none_are_said_by_name(tmp_path: Path, name: str) -> None:
    run = diagnose([str(tmp_path / name)])
    assert len(unreadable(run)) == 1 and str(tmp_path) in unreadable(run)[0].text
    assert run.findings == () and run.verdict is not None and "nothing was judged" in run.verdict.sentence


@pytest.mark.parametrize(
    "content",
    [
        gzip.compress(SOUND.encode()),
        SOUND.encode("utf-16"),
        b"\xef\xbb\xbf" + SOUND.encode(),
        SOUND.replace("\n", "\r\n").encode(),
        SOUND.encode().replace(b"GPU0", b"GPU0\xff", 0) + b"\xff\xfe\n",
    ],
    ids=["gzip", "utf-16", "byte order mark", "windows", "broken bytes"],
)
def test_encodings_are_read(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "topo"
    file.write_bytes(content)
    assert codes([str(file)]).get("healthy") == "info"


def test_a_flood_is_pairs_and_not_lines(tmp_path: Path) -> None:
    off = "".join(
        f"{nccl(dev=a)}P2P is disabled between connected GPUs {a} and {b}. You can repress this message with NCCL_IGNORE_DISABLED_P2P=1.\n"
        for a in range(4)
        for b in range(4)
        if a != b
    )
    (file,) = written(tmp_path, log=off * 3)
    found = [finding for finding in diagnose([file]).findings if finding.code == "p2p-unsupported"]
    assert len(found) == 1 and "for 6 pairs" in found[0].title and len(found[0].evidence) <= 4


def test_the_document_survives_writing_and_reading(tmp_path: Path) -> None:
    run = diagnose(written(tmp_path, a=SOUND, b="Xyzzy plugh\n"))
    assert decode_run(encode(run), "document") == run
    assert [note.kind for note in run.input_notes] == ["not_understood"]


def test_redaction_takes_hosts_addresses_users_and_paths_from_every_text(tmp_path: Path) -> None:
    log = head("2.21.5", "secret-host") + ring(2, "SHM/direct/direct", "secret-host") + "/home/alice/train.py failed on secret-host\n"
    run, removed = redacted(diagnose(written(tmp_path, log=log + listing("NVIDIA A40", "NVIDIA A40"))))
    text = encode(run).decode()
    for secret in ("secret-host", "192.168.10.5", "alice", "0123456789ab", str(tmp_path)):
        assert secret not in text, secret
    assert removed


def test_a_host_in_many_lines_is_removed_once(tmp_path: Path) -> None:
    log = head("2.21.5", "secret-host") + ring(8, "SHM/direct/direct", "secret-host")
    assert "1 host name" in redacted(diagnose(written(tmp_path, log=log)))[1]
