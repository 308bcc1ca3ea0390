"""Readers take time in proportion to their input: patterns begin with their message, and sentences have a budget."""

from __future__ import annotations

import re
from collections.abc import Iterable
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]

import pytest

from wiretax.probe.readers import machine_prose, torch_rules, training_logs, training_text, training_words
from wiretax.probe.readers.piece import Text
from wiretax.probe.readers.streams import MOST_PROSE_CHARACTERS

MESSAGE = 4
"""So many letters in a row are a message; in front of them nothing may be tried over and over at every place of a line."""
WIDE = 60


def wide_in_front(items: Iterable, letters: int = 0) -> tuple[str | None, int]:
    """The first wide repetition in front of a pattern's message, and how many of the message's letters stand at the end."""
    for op, argument in items:
        if op is sre.LITERAL:
            letters += 1
        elif op is sre.SUBPATTERN:
            found, letters = wide_in_front(argument[3], letters)
            if found:
                return found, 0
        elif op is sre.BRANCH:
            ends = [wide_in_front(branch, letters) for branch in argument[1]]
            found = next((found for found, _ in ends if found), None)
            if found:
                return found, 0
            letters = min(count for _, count in ends)
        elif op in (sre.MAX_REPEAT, sre.MIN_REPEAT):
            low, high, inner = argument
            found, _ = wide_in_front(inner)
            if found:
                return found, 0
            if high > WIDE and high != low and inner[0][0] is not sre.LITERAL:
                return f"{inner} up to {high} times", 0
            letters = 0
        elif op not in (sre.AT, sre.ASSERT, sre.ASSERT_NOT):
            letters = 0
        if letters >= MESSAGE:
            return None, letters
    return None, letters


@pytest.mark.parametrize("rule", torch_rules.RULES, ids=lambda rule: f"{rule.kind}: {rule.pattern.pattern[:40]}")
def test_a_message_is_found_before_what_stands_in_front_of_it(rule: torch_rules.Rule) -> None:
    assert wide_in_front(_parser.parse(rule.pattern.pattern))[0] is None


@pytest.mark.parametrize(
    "pattern", [training_logs._TQDM, *(pattern for _, pattern, _ in training_logs._RULES)], ids=lambda p: p.pattern[:40]
)
def test_a_log_line_is_found_by_its_own_words(pattern: re.Pattern[str]) -> None:
    assert wide_in_front(_parser.parse(pattern.pattern))[0] is None


@pytest.mark.parametrize(
    "pattern", [r"(?P<label>.{0,120}?)\d/\d it", r"(?:\[x\].{0,400}?)?last work", r"^\s*rank", r"(?P<name>\S.{2,80}?) with"]
)
def test_the_measure_knows_a_slow_pattern(pattern: str) -> None:
    assert wide_in_front(_parser.parse(pattern))[0] is not None


def prose(num_bytes: int) -> Text:
    lines = []
    while len(lines) * 225 < num_bytes:
        lines.append(f"line {len(lines)}: " + "two GPUs hang and one trains at 1.5 s/it, " * 5)
    return Text(source="notes.txt", lines=tuple(lines), numbers=tuple(range(1, len(lines) + 1)))


def test_no_more_sentences_are_cut_into_words_however_long_the_text_is(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(training_text, "words", lambda line: seen.append(len(line)) or training_words.words(line))
    amounts = []
    for size in (1_000_000, 2_000_000):
        seen.clear()
        training_text.read(prose(size))
        amounts.append(sum(seen))
    assert amounts[0] == amounts[1]
    # A line is looked at for its heading, its head and its sentences.
    assert 0 < amounts[0] <= 3 * MOST_PROSE_CHARACTERS


def test_no_more_sentences_are_read_for_machines_however_long_the_text_is() -> None:
    small, large = (machine_prose.read(prose(size)) for size in (1_000_000, 2_000_000))
    assert len(small[0].understood) == len(large[0].understood)
    assert 0 < len(small[0].understood) <= MOST_PROSE_CHARACTERS / 200


def test_what_stands_in_front_of_a_message_is_still_read() -> None:
    rules = {rule.kind: rule for rule in torch_rules.RULES}
    status = rules["torch.work_status"].read(
        "[PG ID 0 PG GUID 0(default_pg) Rank 3] failure detected by watchdog at work sequence id: 88 PG status: "
        "last enqueued work: 90, last completed work: 87"
    )
    assert status == {
        "process_group": "0", "rank": 3, "failed_at": 88, "last_enqueued": 90, "last_completed": 87,
    }  # fmt: skip
    old = next(rule for rule in torch_rules.RULES if rule.before and "capability" in rule.pattern.pattern)
    said = old.read("NVIDIA GeForce RTX 5090 with CUDA capability sm_120 is not compatible with the current PyTorch installation.")
    assert said == {"name": "NVIDIA GeForce RTX 5090", "capability": "sm_120"}


def test_a_progress_bar_keeps_its_label() -> None:
    text = Text(source="log", lines=("1 GPU:  50%|█████     | 500/1000 [01:40<01:40,  5.00it/s]",), numbers=(1,))
    rates = [o for piece in training_logs.read(text) for o in piece.observations if o.kind == "training.rate"]
    assert [(o.values["num_gpus"], o.values["label"].startswith("1 GPU:")) for o in rates] == [(1, True)]


@pytest.mark.parametrize(
    "line", ['{"a":' * 300 + " 1.5 s/it 2 GPUs", "1" * 1500 + " s 2 GPUs", "--" * 700 + "2 GPUs 1.5 s/it"], ids=["json", "digits", "ruler"]
)
def test_long_lines_without_blanks_are_not_cut_into_words(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(training_text, "words", lambda text: seen.append(text) or training_words.words(text))
    training_text.read(Text(source="data", lines=(line, "2 GPUs: 1.5 s/it"), numbers=(1, 2)))
    assert seen
    assert line not in seen
