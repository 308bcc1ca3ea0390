"""The public cases: each gets the answer that ``expected.json`` asks for, whole and traced to its lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from diagnosed import assert_complete, said, wrong
from wiretax.jobs.diagnose import diagnose
from wiretax.show.diagnosis_markdown import diagnosis_as_markdown

CASES = Path(__file__).parents[1] / "data" / "cases"
ENTRIES: list[dict[str, Any]] = json.loads((CASES / "expected.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("entry", ENTRIES, ids=[entry["id"] for entry in ENTRIES])
def test_a_public_case_gets_the_expected_answer_and_no_forbidden_one(entry: dict[str, Any]) -> None:
    run = diagnose([CASES / name for name in entry["files"]])
    assert not wrong(run, entry["expect"], entry["forbid"]), said(run)
    assert_complete(run)


@pytest.mark.parametrize("entry", ENTRIES, ids=[entry["id"] for entry in ENTRIES])
def test_every_finding_leads_to_a_line_that_stands_in_its_file(entry: dict[str, Any]) -> None:
    run = diagnose([CASES / name for name in entry["files"]])
    files = {str(CASES / name): (CASES / name).read_text(encoding="utf-8").splitlines() for name in entry["files"]}
    for finding in run.findings:
        quoted = [evidence for evidence in finding.evidence if evidence.line is not None]
        if finding.code in ("states-differ", "runs-differ") or (finding.code == "needs-measurement" and not quoted):
            continue
        assert quoted, (finding.code, finding.evidence)
        for evidence in quoted:
            assert evidence.line is not None
            line = files[evidence.source][evidence.line - 1]
            words = [word for word in evidence.text.split() if word.isalnum()][:3]
            assert all(word in line for word in words), (finding.code, evidence, line)


@pytest.mark.parametrize("order", [1, -1])
def test_the_order_of_the_files_does_not_matter(order: int) -> None:
    for entry in ENTRIES:
        if len(entry["files"]) > 1:
            run = diagnose([CASES / name for name in entry["files"][::order]])
            assert not wrong(run, entry["expect"], entry["forbid"]), (entry["id"], said(run))


def test_several_texts_in_one_file_are_understood_as_well(tmp_path: Path) -> None:
    joined = []
    for entry in ENTRIES:
        if entry["id"] in ("C30", "C41", "C54", "C61", "C62", "C71", "C22"):
            continue  # texts of several machines or runs, which only their files keep apart
        text = "\n".join((CASES / name).read_text(encoding="utf-8") for name in entry["files"])
        path = tmp_path / f"{entry['id']}.txt"
        path.write_text(text, encoding="utf-8")
        run = diagnose([path])
        joined += [(entry["id"], problem, said(run)) for problem in wrong(run, entry["expect"], entry["forbid"])]
    assert not joined, joined


@pytest.mark.parametrize("entry", ENTRIES, ids=[entry["id"] for entry in ENTRIES])
def test_markdown_of_a_case_is_whole_and_has_balanced_fences(entry: dict[str, Any]) -> None:
    text = diagnosis_as_markdown(diagnose([CASES / name for name in entry["files"]]))
    fences = [line for line in text.splitlines() if line.startswith("```")]
    assert len(fences) % 2 == 0
    assert text.count("<details>") == text.count("</details>")
    assert "nothing was measured" in text
