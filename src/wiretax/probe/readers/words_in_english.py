# ruff: noqa: RUF001 - letters of other scripts that look like Latin ones are meant
"""The few words of other languages that decide what a line about several GPUs says, in English: counts of cards, hangs, epochs, units.

Many public threads are Chinese or half Chinese ("3090 双卡 124.55s/it"), others Japanese, Korean, Russian, German, French or Spanish. The
readers of prose know English; so a line with such words is translated word by word before they see it. Evidence always shows the line
as it was written.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_NUMBERS = {"单": "1", "一": "1", "双": "2", "两": "2", "二": "2", "三": "3", "四": "4", "六": "6", "八": "8"}
_CARD_NAME = r"(?:RTX|GTX)?\s?(?:[1-5]0[5-9]0|[AHVL]\d{2,3}(?!\d)|T4)"
_COUNT = re.compile(
    r"(?:使用|用)?([单一双两二三四六八]|(?<![\w.])\d{1,3})\s?(?:(?:张|块|个|片)儿?)?\s?(?:显卡|卡(?!住|死)|(?:GPU|gpu)s?(?![A-Za-z]))"
    rf"|([单一双两二三四六八]|(?<![\w.])\d{{1,2}})\s?(?:张|块|片)\s?(?={_CARD_NAME})|([单双])\s?(?={_CARD_NAME})"
)
_CARD_BEFORE_COUNT = re.compile(r"(?<![\d.])([1-5]0[5-9]0)(?=[单一双两二三四六八](?:张|块|个)?(?:显卡|卡))")
"""A card's number that touches the count behind it: "3090双卡"."""

_HOSTS = re.compile(r"([单一双两二三四六八]|(?<![\w.])\d{1,3})\s?(?:(?:个|台)\s?)?(?:节点|机器|服务器|主机)|([单双两])机(?!多卡|器)")

_Rule = tuple[re.Pattern[str], str]


def _rules(*pairs: tuple[str, str]) -> tuple[_Rule, ...]:
    return tuple((re.compile(pattern, re.IGNORECASE), english) for pattern, english in pairs)


_CHINESE = _rules(
    (r"卡住|卡死|挂起", " hangs "), ("死锁", " deadlock "), ("训练", " training "), ("多卡", " multi-GPU "),
    (r"秒\s?/\s?(?:步|次|个?iter)", " s/it "), (r"(?:步|次)\s?/\s?秒", " it/s "), (r"(?:张|样本|条)\s?/\s?秒", " samples/s "),
    ("每(?:个)?(?:epoch|轮)|一(?:个)?(?:epoch|轮)", " per epoch "), ("每(?:一)?(?:步|次迭代|个?iter(?:ation)?|个?step)", " per iter "),
    (r"(?<=\d)\s?个(?=\s?(?:steps?|epochs?|iter|batch))", " "),
    ("(?:个)?小时", " hours "), ("分钟|(?<=\\d)分(?![布别类])", " min "), ("秒", " s "), (r"(?<=\d)\s?天", " days "),
    ("[耗用]时|花费|花了|用了|需要|(?:也)?得(?=\\s?\\d)|要(?=\\s?\\d)", " takes "),
    ("慢", " slow "), ("解决", " solved "), ("正常", " works "), ("报错", " error "), ("步数", " steps "), ("是", " is "),
    ("\uff0c|、", ", "), ("\u3002", ". "), ("\uff1a", ": "), ("\uff1b", "; "), ("\uff08", " ("), ("\uff09", ") "),
)  # fmt: skip
_JAPANESE = _rules(
    (r"GPUs?\s?(\d{1,2})\s?[枚台基]|(?<![\w.])(\d{1,2})\s?[枚台基](?:の\s?GPU)?", r" \1\2 GPUs "),
    (r"シングル\s?GPU", " 1 GPU "), (r"デュアル\s?GPU", " 2 GPUs "), (r"マルチ\s?GPU", " multi-GPU "),
    (r"秒\s?/\s?(?:ステップ|it|iter|イテレーション)", " s/it "), (r"枚\s?/\s?秒", " images/s "), (r"トークン\s?/\s?秒", " tokens/s "),
    ("(?:1|一)\\s?エポック|エポックあたり", " per epoch "), ("エポック", " epoch "), ("ステップ", " step "), ("学習|訓練", " training "),
    (r"(?<=\d)\s?時間", " hours "), (r"(?<=\d)\s?分(?!の)", " min "), (r"(?<=\d)\s?秒", " s "), (r"(?<=\d)\s?日(?!\d)", " days "),
    (r"ハング|固まる|固まり|フリーズ", " hangs "),
    ("遅い|遅く", " slow "), ("解決", " solved "), ("\u3001", ", "), ("\u3002", ". "), ("\uff1a", ": "),
)  # fmt: skip
_KOREAN = _rules(
    (r"GPUs?\s?(\d{1,2})\s?(?:개|장|대)|(?<![\w.])(\d{1,2})\s?(?:개|장|대)(?:의)?\s?GPU", r" \1\2 GPUs "),
    (r"토큰\s?/\s?초", " tokens/s "), (r"초\s?/\s?(?:스텝|it)", " s/it "), ("에폭|에포크", " epoch "), ("학습|훈련", " training "),
    (r"(?<=\d)\s?시간", " hours "), (r"(?<=\d)\s?분", " min "), (r"(?<=\d)\s?초", " s "), (r"(?<=\d)\s?일", " days "),
    ("멈춤|멈춥니다", " hangs "),
)  # fmt: skip
_RUSSIAN_CARD = r"(?:видео)?карт[аеуыйми]*х?|GPU|гпу|[34]0[89]0|RTX|A100"
_RUSSIAN = _rules(
    (rf"\b(?:одн(?:а|ой|ом|у))\s(?=(?:{_RUSSIAN_CARD}))", " 1 "), (rf"\b(?:дв(?:е|ух|а|умя))\s(?=(?:{_RUSSIAN_CARD}))", " 2 "),
    (rf"\b(?:тр[её]х|три)\s(?=(?:{_RUSSIAN_CARD}))", " 3 "), (rf"\b(?:четыр[её]х|четыре)\s(?=(?:{_RUSSIAN_CARD}))", " 4 "),
    (r"(\d{1,2})-?(?:х|мя|ю)?\s?(?:видео)?карт\w{0,3}", r" \1 GPUs "),
    (r"ток(?:ен\w{0,3})?\s?(?:/\s?|в\s)с(?:ек\w{0,4})?\b", " tokens/s "), (r"(?:ит|шаг\w{0,2})\s?(?:/\s?|в\s)с(?:ек\w{0,4})?\b", " it/s "),
    (r"с(?:ек)?\s?/\s?(?:ит\w{0,6}|шаг)\b", " s/it "), (r"на эпоху|за эпоху|/\s?эпох\w{0,2}", " per epoch "), (r"эпох\w{0,2}", " epoch "),
    (r"(?<=\d)\s?час(?:а|ов)?\b", " hours "), (r"(?<=\d)\s?мин(?:ут\w{0,2})?\b", " min "), (r"(?<=\d)\s?(?:секунд\w{0,2}|сек|с)\b", " s "),
    (r"(?<=\d)\s?(?:дн(?:я|ей)|день|сут\w{1,2})\b", " days "), (r"обучени\w|тренировк\w", " training "),
    (r"зависа\w{1,2}|висит", " hangs "),
    (r"медленне\w", " slow "), (r"\b(?:а|но)\b", " but "), (r"\bи\b", " and "), (r"(?<=\d),(?=\d)", "."),
)  # fmt: skip
_LATIN_CARD = r"(?:GPUs?\b|Grafikkarten?|Karten?\b|cartes?\b|tarjetas?|placas?|RTX|[34]0[89]0|A100)"
_LATIN = _rules(
    (rf"\b(?:eine[rnm]?|einzelne[rn]?|une(?: seule)?|una(?: sola)?)\s(?={_LATIN_CARD})", "1 "), (r"\b(?:ein|un|uno)\s(?=GPU\b)", "1 "),
    (rf"\b(?:zwei|deux|dos|duas|due)\s(?={_LATIN_CARD})", "2 "), (rf"\b(?:drei|trois|tres|tre)\s(?={_LATIN_CARD})", "3 "),
    (rf"\b(?:vier|quatre|cuatro|quatro|quattro)\s(?={_LATIN_CARD})", "4 "), (rf"\b(?:acht|huit|ocho|oito|otto)\s(?={_LATIN_CARD})", "8 "),
    (r"\b(?:Grafikkarten?|Karten|cartes graphiques|cartes|tarjetas gr[aá]ficas|tarjetas)\b", "GPUs"),
    (r"\b(?:pro|par|por|per|al) (?:Sekunde|seconde|segundo|secondo)\b", "/s"),
    (r"\b(?:pro|par|por) (?:Epoche|epoch|[eé]poque|[eé]poca)\b", "per epoch"),
    (r"\b(?:pro|par|por) (?:Schritt|Iteration|it[eé]ration|paso|iteraci[oó]n)\b", "per step"),
    (r"\b(?:Bilder|im[aá]genes|imagens)\b", "images"),
    (r"\bSek(?:\.|unden?\b)|\b(?:secondes|segundos|secondi)\b", "s"), (r"\b(?:Minuten|minutos|minuti)\b", "min"),
    (r"\b(?:Stunden?|Std|heures?|horas?|ore)\b", "hours"), (r"(?<=\d)\s?(?:Tagen?|jours|d[ií]as)\b", " days"), (r"\bEpoche\b", "epoch"),
    (r"\bh[aä]ngt\b", "hangs"), (r"\b(?:aber|pero|mais)\b", "but"), (r"\b(?:und|y|et)\b", "and"), (r"(?<=\d),(?=\d{1,2}\b)", "."),
)  # fmt: skip
_LATIN_HINT = re.compile(
    r"\b(?:Grafikkarten?|Karten|Sek(?:unden?)?|Minuten|Stunden?|Epoche|dauert|braucht|zwei|vier|secondes|heures|segundos|horas|minutos|"
    r"tarjetas|deux|dos GPUs?|una? GPU|une GPU|eine[rnm]? GPU)\b"
)
_SCRIPTS: tuple[tuple[re.Pattern[str], tuple[_Rule, ...]], ...] = (
    (re.compile("[\u3040-\u30ff]"), _JAPANESE),
    (re.compile("[\uac00-\ud7af]"), _KOREAN),
    (re.compile("[\u0400-\u04ff]"), _RUSSIAN),
    (re.compile("[\u4e00-\u9fff]"), _CHINESE),
)
_IDEOGRAPHS = re.compile("([\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7af]+)")

_BLANKS = re.compile(" {2,}")


def in_english(line: str) -> str:
    """The line with its known words of other languages in English; any other line as it is."""
    if _LATIN_HINT.search(line):
        return _translated(line, _LATIN)
    if line.isascii():
        return line
    for script, rules in _SCRIPTS:
        if not script.search(line):
            continue
        if rules is _CHINESE:
            line = _CARD_BEFORE_COUNT.sub(r"RTX \1 ", line)
            line = _translated(line, rules[:4])
            line = _COUNT.sub(_count, line)
            line = _HOSTS.sub(_hosts, line)
        line = _translated(line, rules)
    # A letter of these scripts is part of no English word: what touches it stands alone.
    return _BLANKS.sub(" ", _IDEOGRAPHS.sub(r" \1 ", line))


def _translated(line: str, rules: tuple[_Rule, ...]) -> str:
    for pattern, english in rules:
        line = pattern.sub(english if "\\" in english else _literal(english), line)
    return line


def _literal(text: str) -> Callable[[re.Match[str]], str]:
    return lambda _: text


def _hosts(match: re.Match[str]) -> str:
    number = match.group(1) or match.group(2)
    return f" {_NUMBERS.get(number, number)} nodes "


def _count(match: re.Match[str]) -> str:
    number = match.group(1) or match.group(2) or match.group(3)
    return f" {_NUMBERS.get(number, number)} GPUs "
