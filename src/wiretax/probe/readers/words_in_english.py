"""The few Chinese words that decide what a line about several GPUs says, in English: counts of cards, hangs, epochs, seconds.

Many public threads are Chinese or half Chinese ("3090 双卡 124.55s/it"). The readers of prose know English; so a line with such words is
translated word by word before they see it. Evidence always shows the line as it was written.
"""

from __future__ import annotations

import re

_NUMBERS = {"单": "1", "一": "1", "双": "2", "两": "2", "二": "2", "三": "3", "四": "4", "六": "6", "八": "8"}
_COUNT = re.compile(r"(?:使用|用)?([单一双两二三四六八]|(?<![\w.])\d{1,3})\s?(?:张|块|个|片)?\s?(?:显卡|卡(?!住|死)|GPU|gpu)")
_CARD_BEFORE_COUNT = re.compile(r"(?<![\d.])([1-5]0[5-9]0)(?=[单一双两二三四六八](?:张|块|个)?(?:显卡|卡))")
"""A card's number that touches the count behind it: "3090双卡"."""
_WORDS: tuple[tuple[str, str], ...] = (
    ("卡住", " hangs "), ("卡死", " hangs "), ("挂起", " hangs "), ("死锁", " deadlock "), ("训练", " training "), ("秒", " s "),
    ("每个epoch", " per epoch "), ("分钟", " min "), ("小时", " hours "), ("慢", " slow "), ("多卡", " multi-GPU "),
    ("解决", " solved "), ("正常", " works "), ("报错", " error "), ("步数", " steps "), ("需要", " takes "), ("是", " is "),
    ("\uff0c", ", "), ("\u3002", ". "), ("\uff1a", ": "), ("\uff1b", "; "),
)  # fmt: skip
_CHINESE = re.compile(r"[\u4e00-\u9fff]")


def in_english(line: str) -> str:
    """The line with its known Chinese words in English; any other line as it is."""
    if line.isascii() or not _CHINESE.search(line):
        return line
    line = _CARD_BEFORE_COUNT.sub(r"RTX \1 ", line)
    for chinese, english in _WORDS[:4]:
        line = line.replace(chinese, english)
    line = _COUNT.sub(lambda match: f" {_NUMBERS.get(match.group(1), match.group(1))} GPUs ", line)
    for chinese, english in _WORDS[4:]:
        line = line.replace(chinese, english)
    return line
