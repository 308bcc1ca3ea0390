from __future__ import annotations

import io
from pathlib import Path

import pytest

from diagnosed import run_of
from real_texts import devices, listing, p2p, pairs, smi_q, smi_q_gpu, sweep, topo
from wiretax.jobs.provenance import LONGEST, Kept, Lines
from wiretax.model.finding import Evidence

PRINTED = "Device=0 CANNOT Access Peer Device=1\nDevice=1 CANNOT Access Peer Device=0\n"


def lines_of(folder: Path, code: str, **texts: str) -> list[Evidence]:
    run = run_of(folder, texts)
    finding = next(each for each in run.findings if each.code == code)
    return [line for line in finding.evidence if line.line is not None]


@pytest.mark.parametrize(
    ("code", "texts", "line", "text"),
    [
        ("p2p-unsupported-chipset", {"p": p2p(2, "CNS")}, 3, "GPU0"),
        ("p2p-unsupported", {"t": PRINTED}, 1, "Device=0 CANNOT"),
        ("nvlink-islands", {"t": topo(pairs(4, "SYS", p01="NV4", p23="NV4"), ansi=False)}, 2, "GPU0"),
        ("gpus-differ", {"l": listing("NVIDIA A40", "NVIDIA L40S")}, 1, "GPU 0: NVIDIA A40"),
        ("pcie-generation-low", {"q": smi_q("550.90.07", smi_q_gpu("01", "NVIDIA A40", generation=(1, 4)))}, 15, "Current"),
        ("healthy", {"n": devices(2, "NVIDIA H200") + sweep([(268435456, 340.0)], 2), "t": topo(pairs(2, "NV18"))}, None, ""),
    ],
)
def test_a_statement_leads_to_its_line(tmp_path: Path, code: str, texts: dict[str, str], line: int | None, text: str) -> None:
    found = lines_of(tmp_path, code, **texts)
    assert found
    if line is not None:
        assert any(each.text.startswith(text) for each in found), found
        assert any(each.line == line for each in found) or code == "pcie-generation-low", found


def test_lines_are_cut_and_cleaned(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_text("one\n\x1b[31mtwo\x1b[0m\n" + "x" * 5000 + "\n")
    found = Lines().get(str(file), [2, 3, 9])
    assert found[2] == "two" and len(found[3]) < LONGEST + 40 and 9 not in found


def test_standard_input_is_looked_up_in_what_was_kept() -> None:
    kept = Kept(io.BytesIO(b"one\ntwo\nthree"))
    while kept.read(4):
        pass
    assert Lines(kept).get("-", [2, 3]) == {2: "two", 3: "three"}


def test_what_is_gone_is_left_out(tmp_path: Path) -> None:
    assert Lines().get(str(tmp_path / "gone"), [1]) == {}
    assert Lines().get("-", [1]) == {}
