# ruff: noqa: RUF001 - letters of other scripts are meant
"""Words of other languages that name counts of GPUs and units."""

from __future__ import annotations

import pytest

from wiretax.probe.readers.words_in_english import in_english


@pytest.mark.parametrize(
    ("line", "english"),
    [
        ("3090双卡是124.55s/it", "RTX 3090 2 GPUs is 124.55s/it"),
        ("用单卡4090得8500min", "1 GPUs 4090 takes 8500min"),
        ("训练20个steps需要20分钟", "training 20 steps takes 20 min"),
        ("GPU2枚で15分", "2 GPUs で 15 min"),
        ("GPU 2개: 35분", "2 GPUs : 35 min"),
        ("на двух картах 5,6 с/ит", "на 2 GPUs 5.6 s/it"),
        ("mit zwei GPUs 3,1 Sekunden", "mit 2 GPUs 3.1 s"),
        ("con dos GPUs 12 minutos", "con 2 GPUs 12 min"),
    ],
)
def test_a_count_and_a_unit_are_english(line: str, english: str) -> None:
    assert in_english(line).split() == english.split()


@pytest.mark.parametrize("line", ["2 GPUs: 5.6 s/it", "dos2unix and mais", "µs per step — naïve", ""])
def test_english_lines_stay_as_they_are(line: str) -> None:
    assert in_english(line) == line


def test_a_translated_line_does_not_change_again() -> None:
    once = in_english("两张4090训练一轮要2小时，单4090要1.5小时")
    assert in_english(once).split() == once.split()
