"""A run, or several side by side, as one HTML page that needs nothing else: no request, no script to read it, light and dark."""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import Any

from wiretax.errors import INSTALL_REPORT, MissingDependency
from wiretax.model.comparison import Comparison
from wiretax.model.run import Run
from wiretax.show import svg
from wiretax.show.charts import PAGE, charts_of
from wiretax.show.charts.colours import SPEED_COLOURS, SPEED_WORDS, WIRE_COLOURS
from wiretax.show.facts import when
from wiretax.show.packed import packed
from wiretax.show.page import Page, banner_of, page_of
from wiretax.show.plain import plain
from wiretax.show.series import Labelled, machine_title
from wiretax.units import figure

SHORT_CODE = 28
"""Characters up to which code within a sentence is kept in one line: a break after a hyphen would change what is copied."""


def as_html(run: Run, *, removed: Sequence[str] = (), interactive: bool = True) -> str:
    """The page of one run.

    Args:
        run: any run, also a partial one; it is cleaned here, and every text in it is escaped.
        removed: what was taken out of it before it was given here, to be said at the end of the page.
        interactive: with the script that redraws charts; False gives still pictures only, a page of about 200 kB.

    Raises:
        MissingDependency: jinja2, Altair or vl-convert is not installed.
    """
    environment = _environment()
    svg.warm_up()
    clean = plain(run)
    return _render(environment, page_of(clean, removed), [Labelled("this run", clean)], None, interactive=interactive)


def comparison_as_html(comparison: Comparison, runs: Sequence[Run], *, removed: Sequence[str] = (), interactive: bool = True) -> str:
    """The page of a comparison: what differs first, then every chart with all runs in it.

    Args:
        comparison: of these runs.
        runs: in its order.
        removed: see :func:`as_html`.
        interactive: see :func:`as_html`.

    Raises:
        MissingDependency: see :func:`as_html`.
    """
    environment = _environment()
    svg.warm_up()
    cleaned, clean = plain(comparison), [plain(run) for run in runs]
    items = [Labelled(side.label, run) for side, run in zip(cleaned.sides, clean, strict=True)]
    return _render(environment, page_of(clean[0], removed), items, cleaned, interactive=interactive)


def _environment() -> Any:
    try:
        import jinja2
    except ModuleNotFoundError:
        raise MissingDependency("A report page needs jinja2, which is not installed.", do=INSTALL_REPORT) from None
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("wiretax.show"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.globals["figure"] = figure
    environment.filters["code"] = _code
    environment.filters["breakable"] = _breakable
    return environment


def _render(environment: Any, page: Page, items: Sequence[Labelled], comparison: Comparison | None, *, interactive: bool) -> str:
    from markupsafe import Markup

    charts = charts_of(items, PAGE)
    stills = {chart.name: Markup(svg.inline(chart.spec, chart.name, chart.says)) for chart in charts if chart.spec}  # noqa: S704 - escaped there
    live = [(chart.name, chart.spec) for chart in charts if chart.spec]
    script = _asset("page.js") if interactive and live else ""
    return str(
        environment.get_template("report.html").render(
            page=page,
            charts={chart.name: chart for chart in charts},
            stills=stills,
            comparison=comparison,
            sides=[
                {
                    "label": item.label,
                    "title": machine_title(item.run.machine),
                    "made": when(item.run.created_at),
                    "banner": banner_of(item.run),
                }
                for item in items
            ],
            specs=packed(live) if script else "",
            script=Markup(script),  # noqa: S704 - our own file
            bundle=_bundle()[0] if script else "",
            policy=_policy(script),
            style=Markup(_asset("page.css")),  # noqa: S704 - our own file
            wire_colours=WIRE_COLOURS,
            speed_colours=SPEED_COLOURS,
            speed_words=SPEED_WORDS,
        )
    )


def _code(text: str) -> Any:
    """Text with what stands between backticks set as code; escaped like all other text."""
    from markupsafe import Markup, escape

    pieces = text.split("`")
    if len(pieces) % 2 == 0:  # a backtick without its partner
        return text
    return Markup().join(
        Markup('<code class="{}">{}</code>').format("short" if len(piece) <= SHORT_CODE else "", piece) if k % 2 else escape(piece)
        for k, piece in enumerate(pieces)
    )


def _breakable(name: str) -> Any:
    """A long name that may break after dots, strokes and underscores: on a telephone it would push the figures beside it out of sight."""
    from markupsafe import Markup, escape

    return Markup("<wbr>").join(escape(part) for part in re.findall(r"[^._/=]*[._/=]|[^._/=]+$", name))


@cache
def _bundle() -> tuple[str, str]:
    """The drawing script, compressed, as base64; and the hash of its text."""
    data = resources.files("wiretax.show").joinpath("assets", "vega.js.gz").read_bytes()
    return base64.b64encode(data).decode("ascii"), _hash(gzip.decompress(data))


def _asset(name: str) -> str:
    return resources.files("wiretax.show").joinpath("assets", name).read_text(encoding="utf-8")


def _hash(text: bytes) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text).digest()).decode('ascii')}'"


def _policy(script: str) -> str:
    """A content security policy: nothing may be fetched, and no script runs but the two of ours, told by their hashes."""
    scripts = f"{_hash(script.encode('utf-8'))} {_bundle()[1]}" if script else "'none'"
    allowed = "style-src 'unsafe-inline'; img-src data:; font-src data:"
    return f"default-src 'none'; script-src {scripts}; {allowed}; base-uri 'none'; form-action 'none'"
