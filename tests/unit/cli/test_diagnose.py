from __future__ import annotations

import gzip
import io
import json
import sys
from pathlib import Path

import pytest

from real_texts import pairs, smi_q, smi_q_gpu, topo
from wiretax.cli.main import run
from wiretax.store.codec import decode_run

SOUND = topo(pairs(2, "NV4"))
ISLANDS = topo(pairs(4, "SYS", p01="NV4", p23="NV4"))
FULL = "\nbox:1:2 [0] misc/shmutils.cc:72 NCCL WARN Error: failed to extend /dev/shm/nccl-7v1Hc1 to 9637892 bytes\n"


def test_nothing_wrong_exits_with_0(alone: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (alone / "topo").write_text(SOUND)
    assert run(["diagnose", "topo"]) == 0
    assert "nothing wrong is visible" in capfd.readouterr().out


def test_a_text_that_decides_nothing_exits_with_0(alone: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (alone / "topo").write_text(topo(pairs(4, "SYS")))
    assert run(["diagnose", "topo", "--strict"]) == 0
    assert "needs-measurement" in capfd.readouterr().out


def test_a_problem_exits_with_1(alone: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (alone / "log").write_text(FULL)
    assert run(["diagnose", "log"]) == 1
    out = capfd.readouterr().out
    assert "dev-shm-too-small" in out and "--shm-size" in out and "[log:2]" in out


def test_a_warning_counts_when_asked(alone: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (alone / "topo").write_text(ISLANDS)
    assert run(["diagnose", "topo"]) == 0
    assert run(["diagnose", "topo", "--strict"]) == 1
    capfd.readouterr()


@pytest.mark.parametrize("name", ["missing", "folder", "empty", "picture"])
def test_bad_input_exits_with_2_and_the_others_are_judged(alone: Path, capfd: pytest.CaptureFixture[str], name: str) -> None:
    (alone / "folder").mkdir()
    (alone / "empty").write_bytes(b"")
    (alone / "picture").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(range(256)))
    (alone / "good").write_text(SOUND)
    assert run(["diagnose", name, "good", "--json"]) == 2
    out, err = capfd.readouterr()
    assert err.count("error: ") == 1 and name in err
    document = decode_run(out.encode(), "stdout")
    assert [note.source for note in document.input_notes if note.kind == "unreadable"] == [name]
    assert "healthy" in {finding.code for finding in document.findings}


def test_no_file_is_wrong_usage(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["diagnose"]) == 2
    assert "FILE" in capfd.readouterr().err


def test_json_and_markdown_exclude_each_other(alone: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (alone / "topo").write_text(SOUND)
    assert run(["diagnose", "topo", "--json", "--markdown"]) == 2
    assert "exclude each other" in capfd.readouterr().err


def test_json_is_a_whole_document_and_nothing_else(alone: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (alone / "topo").write_text(ISLANDS)
    assert run(["diagnose", "--json", "topo"]) == 0
    document = json.loads(capfd.readouterr().out)
    assert document["command"] == "diagnose" and document["machine"]["origin"] == "pasted"
    finding = next(each for each in document["findings"] if each["code"] == "nvlink-islands")
    assert {"evidence", "confidence", "effect", "remedy", "confirm"} <= finding.keys()
    assert any(line["source"] == "topo" and line["line"] for line in finding["evidence"])


def test_standard_input_is_read(alone: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(gzip.compress(SOUND.encode()))))
    assert run(["diagnose", "-"]) == 0
    assert "nothing wrong is visible" in capfd.readouterr().out


def test_markdown_is_redacted_unless_told_otherwise(alone: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (alone / "log").write_text(FULL.replace("box", "secret-host"))
    assert run(["diagnose", "--markdown", "log"]) == 1
    assert "secret-host" not in capfd.readouterr().out
    assert run(["diagnose", "--markdown", "--no-redact", "log"]) == 1
    assert "secret-host" in capfd.readouterr().out
    assert run(["diagnose", "--json", "--redact", "log"]) == 1
    assert "secret-host" not in capfd.readouterr().out


def test_the_terminal_shows_machine_table_and_what_was_not_understood(alone: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (alone / "topo").write_text(ISLANDS + "\nXyzzy plugh\n")
    (alone / "q").write_text(smi_q("550.90.07", smi_q_gpu("01", "NVIDIA A40"), smi_q_gpu("41", "NVIDIA A40")))
    assert run(["diagnose", "topo"]) == 0
    out = capfd.readouterr().out
    order = [out.index(part) for part in ("nvlink-islands", "Machine, as the texts show it", "  GPU3 ", "Not understood", "Xyzzy plugh")]
    assert order == sorted(order)
