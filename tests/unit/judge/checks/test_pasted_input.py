import pytest

from boxes import box, found, run
from real_texts import pairs, topo
from texts import text_run
from wiretax.judge.checks.pasted_input import check


def test_a_row_cut_on_its_way_is_named_with_its_line():
    bent = topo(pairs(4, "SYS"), ansi=False).replace("GPU2\tSYS\tSYS\t X \tSYS", "GPU2\tSYS\tSYSX SYS")
    finding = found(check, text_run(bent))["input-degraded"]
    assert finding.severity == "info" and any(line.line == 4 for line in finding.evidence)


def test_halves_that_disagree_are_damage():
    text = "|  | GPU0 | GPU1 |\n|--|--|--|\n| GPU0 | X | PHB |\n| GPU1 | NODE | X |\n"
    assert "input-degraded" in found(check, text_run(text))


@pytest.mark.parametrize(
    "subject", [text_run(topo(pairs(4, "SYS"))), text_run("what is this\n"), run(box(2))], ids=["whole", "unknown", "live"]
)
def test_whole_output_unknown_words_and_live_runs_are_not_damaged(subject):
    assert found(check, subject) == {}
