"""The report in a real Chromium: no request, no error, sliders that calculate what the plan calculates, themes, paper."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import hostile
import report_runs
import sample_runs
from pages import pages
from wiretax.model.money import Price
from wiretax.plan.checkpointing import Interruptions, daly_interval, expected_seconds
from wiretax.plan.cost import run_cost, wall_hours
from wiretax.show.html import as_html
from wiretax.store.folder import load_run

Open = Callable[..., Any]
SCALED = Path(__file__).parents[2] / "benchmarks" / "results" / "scale_cpu.json"
ROW = "return window.wiretaxViews.planner.data('%s')"


def planned(page: Any) -> dict[str, Any]:
    """The chosen line of the planner, found in whichever of Vega's tables holds it."""
    rows = page.script(
        """const view = window.wiretaxViews.planner;
        const gpus = view.signal('gpus');
        for (const data of Object.keys(view.getState({data: () => true, signals: () => false}).data)) {
          const found = (view.data(data) || []).filter((row) => row.n === gpus && row.wall !== undefined);
          if (found.length) return JSON.stringify(found[0]);
        }"""
    )
    import json

    return dict(json.loads(rows))


@pytest.mark.parametrize("name", ["h200_pair", "eight", "sixty_four", "budget_box", "inspected", "cpu_only", "hung"])
def test_a_page_asks_for_nothing_but_itself_and_its_console_stays_empty(open_page: Open, name: str) -> None:
    page = open_page(pages(name))
    assert page.requests() == [page.path.as_uri()]
    assert page.console() == []
    drawn = page.script("return Object.keys(window.wiretaxViews)")
    figures = page.script("return [...document.querySelectorAll('figure.chart .plot .still')].length")
    assert len(drawn) == figures
    assert page.script("return document.querySelectorAll('.live svg').length") == figures


def test_first_content_is_there_within_a_second(open_page: Open) -> None:
    page = open_page(pages("eight"))
    paints = page.script("return performance.getEntriesByType('paint').map((e) => [e.name, e.startTime])")
    assert dict(paints)["first-contentful-paint"] < 1000


def test_the_page_is_readable_without_scripts(driver: Any, open_page: Open) -> None:
    driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        page = open_page(pages("h200_pair"), ready="")
        from selenium.webdriver.common.by import By

        text = driver.find_element(By.TAG_NAME, "body").text
        assert "USE ALL 2 GPUs" in text
        assert "KEEP THE BOX" in text
        assert "What each wire delivers" in text
        stills = driver.find_elements(By.CSS_SELECTOR, ".still svg")
        assert len(stills) >= 5
        assert all(still.is_displayed() and still.size["height"] > 40 for still in stills)
        assert not driver.find_element(By.CSS_SELECTOR, "button.theme").is_displayed()
        assert page.requests() == [page.path.as_uri()]
    finally:
        driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_the_theme_switches_without_drawing_anew(open_page: Open) -> None:
    page = open_page(pages("h200_pair"))

    def colours() -> tuple[str, str]:
        back = page.script("return getComputedStyle(document.body).backgroundColor")
        line = "document.querySelector('#busbw .live path[stroke=\"var(--wire-default)\"]')"
        return back, page.script(f"return getComputedStyle({line}).stroke")

    before = colours()
    page.script("document.querySelector('button.theme').click()")
    after = colours()
    assert page.script("return document.documentElement.dataset.theme") in ("dark", "light")
    assert before[0] != after[0]
    assert before[1] != after[1]
    page.script("document.querySelector('button.theme').click()")
    assert colours() == before


def test_it_prints_on_paper_with_the_still_pictures(driver: Any, open_page: Open) -> None:
    open_page(pages("h200_pair"))
    pdf = base64.b64decode(driver.print_page())
    assert pdf.startswith(b"%PDF-")
    count = len(re.findall(rb"/Type\s*/Page[^s]", pdf))
    assert 2 <= count <= 14
    assert len(pdf) > 40_000


def test_on_a_telephone_charts_are_drawn_as_wide_as_their_card(open_page: Open, driver: Any) -> None:
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": 420, "height": 900, "deviceScaleFactor": 1, "mobile": False})
    try:
        page = open_page(pages("h200_pair"))
        widths = page.script(
            """return Object.fromEntries([...document.querySelectorAll('.plot')].filter((p) => p.querySelector('.live svg'))
                .map((p) => [p.parentElement.id, [p.querySelector('.live svg').getBoundingClientRect().width, p.clientWidth]]));"""
        )
        assert {"busbw", "latency", "scaling", "step", "planner"} <= widths.keys()
        for name, (drawn, room) in widths.items():
            assert drawn <= room + 1, name
        assert page.script("return document.documentElement.scrollWidth") <= 420
        smallest = page.script(
            "return Math.min(...[...document.querySelectorAll('.live text')].map((t) => t.getBoundingClientRect().height))"
        )
        assert smallest >= 9
    finally:
        driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def typed(**changes: float | str) -> dict[str, float | str]:
    return {"source": "typed", "gpus": 4, "hours": 40, "price": 2, "eff": 0.8, **changes}


@pytest.mark.parametrize(
    "signals",
    [
        typed(),
        typed(gpus=1),
        typed(gpus=8, eff=0.7, price=3.35, hours=119),
        typed(interruptions=4, checkpoint=60, restart=5),
        typed(gpus=2, interruptions=24, checkpoint=300, restart=0, hours=400),
        typed(interruptions=2, checkpoint=900, restart=60, hours=1),
    ],
)
def test_the_planner_says_what_wiretax_plan_says(open_page: Open, signals: dict[str, Any]) -> None:
    page = open_page(pages("budget_box_priced"))
    for name, value in signals.items():
        page.signal("planner", name, value)
    row = planned(page)
    count, efficiency = signals["gpus"], 1.0 if signals["gpus"] == 1 else signals["eff"]
    hours = wall_hours(signals["hours"], count, efficiency)
    if signals.get("interruptions"):
        known = Interruptions(mean_gap=86400 / signals["interruptions"], checkpoint=signals["checkpoint"], restart=signals["restart"] * 60)
        interval = min(daly_interval(known.checkpoint, known.mean_gap), hours * 3600)
        assert row["interval"] == pytest.approx(interval, rel=1e-9)
        hours = expected_seconds(hours * 3600, interval, known) / 3600
    assert row["wall"] == pytest.approx(hours, rel=1e-9)
    assert row["cost"] == pytest.approx(run_cost(Price(amount=signals["price"], currency="USD", per="gpu_hour"), count, hours), rel=1e-9)
    assert row["late"] == 0


def test_40_hours_at_2_dollars_on_4_gpus_at_80_percent_are_100_dollars_in_words(open_page: Open) -> None:
    page = open_page(pages("budget_box_priced"))
    for name, value in typed(deadline=12).items():
        page.signal("planner", name, value)
    said = page.script("return document.querySelector('#planner .live svg').textContent")
    assert "4 GPUs: 12.5 h, 100.00 EUR, efficiency 80 %, wire tax 20 %. Too late." in said
    page.signal("planner", "deadline", 13)
    assert "In time." in page.script("return document.querySelector('#planner .live svg').textContent")


def test_over_a_measured_wire_the_planner_starts_at_the_forecast_and_larger_steps_pay_less(open_page: Open) -> None:
    page = open_page(pages("eight"))
    run = report_runs.many(8, everything=True)
    for wire in ("default", "p2p_off", "socket"):
        page.signal("planner", "source", wire)
        for count in (2, 4, 8):
            page.signal("planner", "gpus", count)
            forecast = next(f for f in run.forecasts if f.wire == wire and f.num_gpus == count)
            assert planned(page)["e"] == pytest.approx(forecast.efficiency_fraction, rel=1e-4)
    before = planned(page)["e"]
    page.signal("planner", "accumulate", 16)
    assert planned(page)["e"] > before * 2


def test_sliders_are_there_to_be_moved_by_hand_and_by_key(driver: Any, open_page: Open) -> None:
    page = open_page(pages("budget_box_priced"))
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    labels = driver.find_elements(By.CSS_SELECTOR, "#planner .vega-bind label")
    names = [label.text for label in labels]
    for word in ("per GPU-hour", "GPUs", "efficiency", "batch", "micro-steps", "deadline", "interruptions"):
        assert any(word in name for name in names), (word, names)
    slider = next(label for label in labels if "hours on one GPU" in label.text).find_element(By.TAG_NAME, "input")
    before = page.script("return window.wiretaxViews.planner.signal('hours')")
    slider.send_keys(Keys.ARROW_RIGHT)
    assert page.script("return window.wiretaxViews.planner.signal('hours')") == before + 1


def test_a_menu_of_the_wire_chart_changes_what_it_shows(open_page: Open) -> None:
    page = open_page(pages("h200_pair"))
    text = "return document.querySelector('#busbw .live svg').textContent"
    assert "what the links carry" in page.script(text)
    page.signal("busbw", "op", "all_gather")
    page.signal("busbw", "mode", "eager")
    assert page.console() == []
    assert page.script("return document.querySelectorAll('#busbw .live svg path[stroke=\"var(--wire-default)\"]').length") >= 1


@pytest.mark.parametrize("keep", [frozenset(), frozenset({"wire", "strategy", "operation"})])
def test_hostile_names_are_shown_as_text(open_page: Open, keep: frozenset[str]) -> None:
    for run in (report_runs.h200_pair(), sample_runs.four_4090(Price(amount=1, currency="EUR", per="box_hour"))):
        page = open_page(as_html(hostile.hostile(run, keep=keep)))
        assert page.script("return window.hacked") is None
        assert page.script("return document.querySelectorAll('img, iframe, object, embed').length") == 0
        assert page.script("return document.querySelectorAll('script').length") == 4
        text = page.script("return document.body.textContent")
        assert f"{hostile.MARK}<script>window.hacked=1</script>" in text
        assert "{{ 7 * 7 }}" in text
        assert "\x1b" not in text
        assert "\u202e" not in text
        assert page.requests() == [page.path.as_uri()]
        assert page.console() == []


def test_a_comparison_page_draws_both_runs_in_each_chart(open_page: Open) -> None:
    page = open_page(pages("comparison"))
    assert page.console() == []
    assert page.requests() == [page.path.as_uri()]
    for chart in ("busbw", "compute"):
        text = page.script(f"return document.querySelector('#{chart} .live svg').textContent")
        assert "before" in text
        assert "after" in text


def test_a_narrow_window_never_scrolls_sideways_as_a_whole(driver: Any, open_page: Open) -> None:
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": 390, "height": 900, "deviceScaleFactor": 1, "mobile": True})
    try:
        for name in ("h200_pair", "sixty_four", "inspected"):
            page = open_page(pages(name))
            assert page.script("return document.documentElement.scrollWidth") <= 390
    finally:
        driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_text_has_enough_contrast_in_both_themes(open_page: Open) -> None:
    page = open_page(pages("budget_box"))
    measure = """
    const luminance = (c) => { const [r, g, b] = c.match(/[\\d.]+/g).map(Number).map((v) => v / 255)
      .map((v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
    const back = (e) => {
      while (e) {
        const c = getComputedStyle(e).backgroundColor;
        if (!/, 0\\)$|transparent/.test(c)) return c;
        e = e.parentElement;
      }
      return 'rgb(255, 255, 255)';
    };
    const found = [];
    for (const e of document.querySelectorAll('h1,h2,h3,p,dt,dd,b,summary,figcaption,td,th,.figure,.keep,code,li,footer,nav a')) {
      if (e.closest('svg') || !e.textContent.trim() || !e.offsetParent) continue;
      const [a, b] = [luminance(getComputedStyle(e).color), luminance(back(e))].sort((x, y) => y - x);
      const ratio = (a + 0.05) / (b + 0.05);
      if (ratio < 4.5) found.push([e.tagName, e.className, e.textContent.slice(0, 40), ratio]);
    }
    return found;"""
    for theme in ("light", "dark"):
        page.script("document.documentElement.dataset.theme = arguments[0]", theme)
        assert page.script(measure) == []


def test_replaced_prices_reach_the_planner(open_page: Open) -> None:
    run = replace(report_runs.h200_pair(), price=Price(amount=14.0, currency="CHF", per="box_hour"))
    page = open_page(as_html(run))
    assert page.script("return window.wiretaxViews.planner.signal('price')") == 7
    assert "CHF" in page.script("return document.querySelector('#planner .live svg').textContent")


@pytest.mark.parametrize("width", [360, 375, 420, 1180])
def test_no_text_of_a_chart_is_cut_off_at_the_right(driver: Any, open_page: Open, width: int) -> None:
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": True})
    try:
        for page in (as_html(load_run(SCALED)), pages("comparison"), pages("budget_box")):
            cut = open_page(page).script(
                """return [...document.querySelectorAll('.live svg')].flatMap((svg) => [...svg.querySelectorAll('text')]
                     .filter((text) => text.textContent && text.getBoundingClientRect().right > svg.getBoundingClientRect().right + 1)
                     .map((text) => text.textContent));"""
            )
            assert cut == []
    finally:
        driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_on_a_telephone_both_figures_of_a_comparison_are_in_sight(driver: Any, open_page: Open) -> None:
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": 375, "height": 900, "deviceScaleFactor": 1, "mobile": True})
    try:
        hidden = open_page(pages("comparison")).script(
            """return [...document.querySelectorAll('#differences td')].filter((cell) => {
                 const box = cell.closest('.card').getBoundingClientRect(), mine = cell.getBoundingClientRect();
                 return mine.right > box.right || mine.left < box.left; }).map((cell) => cell.textContent);"""
        )
        assert hidden == []
    finally:
        driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_no_text_of_a_chart_stands_outside_its_picture(open_page: Open) -> None:
    page = open_page(pages("comparison"))
    cut = page.script(
        """return [...document.querySelectorAll('.live svg')].flatMap((svg) => [...svg.querySelectorAll('text')]
             .filter((text) => text.textContent && text.getBoundingClientRect().left < svg.getBoundingClientRect().left - 0.5)
             .map((text) => text.textContent));"""
    )
    assert cut == []
