"""The page as text: complete, small, escaped, and allowed to do nothing but draw itself."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from importlib import resources
from pathlib import Path
from typing import Any

import altair as alt
import pytest

import hostile
import sample_runs
from pages import pages, runs
from wiretax.judge.compare import compare
from wiretax.model.measurement import Measurements
from wiretax.model.run import Run
from wiretax.show.html import _code, as_html, comparison_as_html
from wiretax.show.svg import VEGA_LITE
from wiretax.store.folder import load_run

MEGABYTE = 1_000_000
RESULTS = Path(__file__).parents[3] / "benchmarks" / "results"


class Reader(HTMLParser):
    """Elements, their text, and what stands in attributes."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.skip = 0
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.skip += tag in ("script", "style")

    def handle_endtag(self, tag: str) -> None:
        self.skip -= tag in ("script", "style")

    def handle_data(self, data: str) -> None:
        if not self.skip:
            self.text.append(data)

    @property
    def words(self) -> str:
        return " ".join(" ".join(self.text).split())


def specifications(page: str) -> list[dict[str, Any]]:
    found = re.search(r'<script type="text/plain" id="specs">([^<]+)</script>', page)
    assert found is not None
    return list(json.loads(gzip.decompress(base64.b64decode(found[1]))))


def test_the_verdict_the_wire_tax_and_every_part_are_on_the_page_of_a_whole_run() -> None:
    words = Reader(pages("h200_pair")).words
    for text in (
        "2 \u00d7 NVIDIA H200",
        "USE ALL 2 GPUs",
        "KEEP THE BOX",
        "Wire tax",
        "46 % P2P switched off, 2 GPUs, measured (31 % to 59 % predicted); 3.25 USD an hour",
        "1.77 \u00d7 as fast as one, measured",
        "Nothing wrong was found",
        "How the GPUs are joined",
        "Every pair of GPUs",
        "What each wire delivers",
        "Small messages",
        "What each GPU computes",
        "From 1 to N GPUs",
        "Where a step's time goes",
        "What would it cost?",
        "Where this comes from",
        "580.159.04",
    ):
        assert text in words, text


def test_verdict_and_wire_tax_come_before_everything_else() -> None:
    page = pages("budget_box")
    places = [
        page.index(mark) for mark in ('id="verdict"', 'id="wire-tax"', 'id="findings"', 'id="machine"', 'id="wires"', 'id="provenance"')
    ]
    assert places == sorted(places)


def test_a_constructed_machine_is_never_shown_as_a_measurement() -> None:
    assert "Constructed machine, not a measurement" in Reader(pages("budget_box")).words


def test_a_comparison_says_of_each_side_that_it_is_constructed_before_any_figure() -> None:
    words = Reader(pages("comparison")).words
    assert words.index("before : Constructed machine, not a measurement") < words.index("What differs")
    assert words.index("after : Constructed machine, not a measurement") < words.index("What differs")


def test_a_note_that_all_sides_share_stands_there_once_and_a_live_run_has_none() -> None:
    live = sample_runs.h200_pair()
    assert live.machine is not None
    recorded = replace(live, machine=replace(live.machine, origin="recorded", origin_note="two H200"))
    both = comparison_as_html(compare([recorded, recorded]), [recorded, recorded], interactive=False)
    assert both.count("Recorded machine: two H200") == 1
    assert 'class="banner"' not in comparison_as_html(compare([live, live]), [live, live], interactive=False)


def test_a_comparison_says_worse_and_better_in_words() -> None:
    page = pages("comparison")
    assert "-91.4 % ✗ worse" in Reader(page).words
    assert "▲" not in re.sub(r"<style>.*?</style>", "", page, flags=re.DOTALL)


def test_what_stands_between_backticks_is_set_as_code_and_stays_escaped() -> None:
    assert str(_code("Remove it: `unset <X>`.")) == 'Remove it: <code class="short">unset &lt;X&gt;</code>.'
    assert _code("a lone ` stays") == "a lone ` stays"
    assert "`" not in Reader(pages("sixty_four")).words


def test_a_machine_without_a_gpu_is_never_said_to_have_some() -> None:
    run = load_run(RESULTS / "scale_cpu.json")
    words = Reader(as_html(run, interactive=False)).words
    for wrong in ("2 GPUs", "1 GPU ", "GPU time"):
        assert wrong not in words, wrong
    assert "gloo, the backend for CPUs, 2 CPU ranks, measured (10 % to 22 % predicted)" in words
    assert "CUDA graph" not in words


def test_a_box_to_give_back_is_not_introduced_by_an_order_to_use_it() -> None:
    words = Reader(pages("sixty_four")).words
    assert words.index("GIVE THE BOX BACK") < words.index("OR USE ALL 64 GPUs")


def test_the_page_of_facts_only_says_so_and_still_has_its_picture() -> None:
    page = pages("inspected")
    words = Reader(page).words
    assert "FACTS ONLY" in words
    assert "nothing was measured" in words
    assert "CPU socket 1" in words
    assert "Wire tax" not in words
    assert 'id="busbw"' not in page
    assert "unknown: not read" in words


@pytest.mark.parametrize(("name", "most"), [("h200_pair", 1.0), ("eight", 1.0), ("sixty_four", 1.5), ("inspected", 0.6)])
def test_pages_stay_small(name: str, most: float) -> None:
    assert len(pages(name).encode("utf-8")) <= most * MEGABYTE


def test_a_still_page_has_no_script_and_is_smaller_by_the_bundle() -> None:
    page = as_html(runs("h200_pair"), interactive=False)
    reader = Reader(page)
    assert not [tag for tag, _ in reader.tags if tag == "script"]
    assert any("script-src 'none'" in (attrs.get("content") or "") for tag, attrs in reader.tags if tag == "meta")
    assert len(page) < len(pages("h200_pair")) - 400_000
    assert "USE ALL 2 GPUs" in reader.words


def test_the_policy_allows_exactly_the_two_scripts_of_the_page() -> None:
    page = pages("h200_pair")
    policy = next(attrs["content"] for tag, attrs in Reader(page).tags if tag == "meta" and attrs.get("http-equiv"))
    assert policy is not None
    assert policy.startswith("default-src 'none';")
    assert "unsafe-eval" not in policy
    own = page.rpartition("<script>")[2].partition("</script>")[0]
    found = re.search(r'id="vega">([^<]+)</script>', page)
    assert found is not None
    bundle = gzip.decompress(base64.b64decode(found[1]))
    for script in (own.encode("utf-8"), bundle):
        assert f"'sha256-{base64.b64encode(hashlib.sha256(script).digest()).decode()}'" in policy


def test_nothing_on_the_page_names_another_place_to_fetch_from() -> None:
    for name in ("h200_pair", "sixty_four", "comparison"):
        reader = Reader(pages(name))
        for tag, attrs in reader.tags:
            assert tag not in ("link", "img", "iframe", "object", "embed", "base"), tag
            for key in ("src", "href", "xlink:href", "action", "srcset", "data"):
                value = attrs.get(key)
                assert value is None or value.startswith("#"), (tag, key, value)
        assert "@import" not in pages(name)


def test_every_picture_has_words_and_every_chart_a_table() -> None:
    for name in ("h200_pair", "eight", "sixty_four", "budget_box"):
        page = pages(name)
        reader = Reader(page)
        pictures = [attrs for tag, attrs in reader.tags if tag == "svg" and attrs.get("aria-hidden") != "true"]
        assert pictures
        assert all(attrs.get("role") == "img" and attrs.get("aria-label") for attrs in pictures)
        for figure in re.findall(r'<figure class="card chart" id="[a-z]+">.*?</figure>', page, re.DOTALL):
            assert "<table" in figure


def test_above_16_gpus_the_picture_of_the_pairs_is_a_coloured_table() -> None:
    page = pages("sixty_four")
    figure = page.partition('id="pairs">')[2].partition("</figure>")[0]
    assert figure.count("<tr>") == 65
    assert figure.count('<td class="s') == 64 * 63
    assert 'class="s4"' in figure  # The slow GPU's pairs.
    assert "<svg" not in figure


def test_still_pictures_share_no_id() -> None:
    for name in ("h200_pair", "comparison"):
        ids = [attrs["id"] for _, attrs in Reader(pages(name)).tags if attrs.get("id")]
        assert len(ids) == len(set(ids))


@pytest.mark.parametrize("keep", [frozenset(), frozenset({"wire", "strategy"})])
@pytest.mark.parametrize("name", ["h200_pair", "four_4090", "cpu_only", "hung", "inspected"])
def test_hostile_texts_become_text(name: str, keep: frozenset[str]) -> None:
    page = as_html(hostile.hostile(getattr(sample_runs, name)(), keep=keep))
    reader = Reader(page)
    assert len([tag for tag, _ in reader.tags if tag == "script"]) in (0, 3)
    assert not [attrs for _, attrs in reader.tags if any(name.startswith("on") for name in attrs)]
    assert not [tag for tag, _ in reader.tags if tag in ("img", "iframe", "object")]
    assert "\x1b" not in page
    assert "\u202e" not in page
    assert "x" * 1000 not in page.partition('id="vega"')[0]
    assert hostile.MARK in reader.words


def test_an_empty_run_still_makes_a_page() -> None:
    from wiretax.model.run import Tool

    run = Run(run_id="r", created_at="yesterday", tool=Tool(version="1"))
    words = Reader(as_html(run)).words
    assert "no machine described" in words
    assert "FACTS ONLY" in words


def test_a_run_whose_measurements_are_empty_series_makes_a_page() -> None:
    run = sample_runs.h200_pair()
    bare = replace(run, measurements=Measurements(collectives=tuple(replace(c, points=()) for c in run.measurements.collectives)))
    assert "USE ALL 2 GPUs" in Reader(as_html(bare)).words


def test_the_bundle_draws_the_grammar_that_altair_writes() -> None:
    assert alt.SCHEMA_VERSION.startswith(f"v{VEGA_LITE}")
    packed = resources.files("wiretax.show").joinpath("assets", "vega.js.gz").read_bytes()
    script = gzip.decompress(packed).decode("utf-8")
    assert "vegaEmbed" in script
    assert "</script" not in script
    assert resources.files("wiretax.show").joinpath("assets", "NOTICE.txt").read_text().count("BSD-3-Clause") == 1


def test_the_charts_in_the_page_unpack_to_rows() -> None:
    found = {item["name"]: item["spec"] for item in specifications(pages("h200_pair"))}
    assert list(found) == ["pairs", "busbw", "latency", "compute", "scaling", "step", "planner"]
    text = json.dumps(found["busbw"])
    assert '"columns"' in text
    assert "all_reduce" in text


def test_what_was_removed_is_said_at_the_end() -> None:
    page = as_html(sample_runs.inspected(), removed=("1 host name", "4 UUIDs"), interactive=False)
    assert "Removed before sharing: 1 host name, 4 UUIDs." in Reader(page).words


def test_long_names_may_break_after_their_joints_and_stay_whole_as_text() -> None:
    found = re.search(r'<th scope="row" class="metric">(.*?)</th>', pages("comparison"))
    assert found is not None
    assert "<wbr>" in found.group(1)
    assert found.group(1).replace("<wbr>", "") == "send_recv_busbw_peak_bytes_per_second.default.2"
