"""Text for an issue thread: complete, and nothing in it acts."""

from __future__ import annotations

import re

import pytest

import hostile
import sample_runs
from wiretax.judge.compare import compare
from wiretax.show.markdown import as_markdown, comparison_as_markdown, escaped


def outside_fences(text: str) -> str:
    """The text without fenced blocks and code spans, whose content is shown as it stands."""
    return re.sub(r"`[^`\n]*`", "", re.sub(r"(?ms)^(`{3,})text\n.*?^\1$", "", text))


def test_verdict_figures_wires_findings_and_the_whole_run_are_there() -> None:
    text = as_markdown(sample_runs.four_4090(), removed=["1 host name"])
    for part in (
        "USE ONE GPU: 0, give the box back",
        "| all-reduce, default | **5.90 GB/s** | 66 % of what it should reach |",
        "wire tax over default",
        "**all-reduce on 4 ranks, busbw in GB/s**",
        "| GPU0 |  | 4.00 PHB | 13.1 SYS | 13.1 SYS |",
        "### problem: The GPUs cannot reach each other",
        "`p2p-unsupported-chipset`, certain",
        "- to disprove it: `nvidia-smi topo -p2p r`",
        "<details><summary>the whole run</summary>",
        "Removed before sharing: 1 host name.",
    ):
        assert part in text, part


def test_facts_only_is_short_and_has_no_table_of_wires() -> None:
    text = outside_fences(as_markdown(sample_runs.inspected()))
    assert "FACTS ONLY" in text
    assert "busbw" not in text


@pytest.mark.parametrize("name", ["h200_pair", "four_4090", "cpu_only", "hung", "inspected"])
def test_hostile_texts_neither_act_nor_break_out(name: str) -> None:
    text = outside_fences(as_markdown(hostile.hostile(getattr(sample_runs, name)())))
    without_ours = re.sub(r"</?(?:details|summary)>", "", text)
    assert not re.search(r"(?<!\\)<[a-zA-Z/!]", without_ours)
    assert not re.search(r"(?<![\\])\]\(", text)
    assert not re.search(r"(?<!\\)@everyone", text)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert not re.search(r"(?m)^# heading", text)


def test_a_fence_is_longer_than_any_in_the_text() -> None:
    text = as_markdown(hostile.hostile(sample_runs.h200_pair(), iter(["`````" + str(k) for k in range(10_000)])))
    fence = re.search(r"(?m)^(`{3,})text$", text)
    assert fence is not None
    assert len(fence[1]) >= 6


def test_escaping() -> None:
    assert escaped("a_b *c* <d> @e | f") == r"a\_b \*c\* \<d\> \@e \| f"
    assert "://" not in escaped("https://example.org")


def test_a_comparison_names_the_figures_and_what_changed() -> None:
    text = comparison_as_markdown(compare([sample_runs.h200_pair(), sample_runs.four_4090()], ["pair", "four"]))
    assert text.startswith("## four against pair")
    assert "changed: **GPUs**: 2 x NVIDIA H200, 4 x NVIDIA GeForce RTX 4090" in text
    assert "| metric | run | pair | this run | change | |" in text
