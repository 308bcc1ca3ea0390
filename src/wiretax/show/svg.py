"""Charts as pictures that need no script: SVG for the page, SVG and PNG files for other programs. Drawn by vl-convert, no browser."""

from __future__ import annotations

import re
import threading
from typing import Any

from wiretax.errors import INSTALL_REPORT, MissingDependency

VEGA_LITE = "6.4"
"""The grammar's version that Altair 6.3 writes and the page's bundle draws."""

_NUMBER = re.compile(r"-?\d+\.\d{2,}")
_NOISE = re.compile(r' (?:aria-[a-z]+|role|pointer-events|class|xmlns:xlink|version|stroke-miterlimit)="[^"]*"')
_EMPTY_PATH = re.compile(r'<path[^>]* d=""[^>]*/>|<path d="M0,0h0v0h0Z"/>|<path d="M0\.5,0\.5h0v0h0Z"/>')
_EMPTY_GROUP = re.compile(r"<g(?: [^>]*)?></g>")
_PLAIN_GROUP = re.compile(r'<g transform="translate\(0,0\)">')
_OPACITY = re.compile(r' opacity="1"')
_ID = re.compile(r'((?:\sid|href)="#?|url\(#)([^")]+)')


def _vl_convert() -> Any:
    try:
        import vl_convert
    except ModuleNotFoundError:
        raise MissingDependency("Pictures of charts need vl-convert, which is not installed.", do=INSTALL_REPORT) from None
    return vl_convert


def warm_up() -> None:
    """Starts the drawing engine in the background: its first picture takes half a second longer, which runs beside other work."""
    engine = _vl_convert()
    spec = {"data": {"values": [{"a": 1}]}, "mark": "point", "encoding": {}}
    threading.Thread(target=engine.vegalite_to_svg, args=(spec,), kwargs={"vl_version": VEGA_LITE}, daemon=True).start()


def picture(spec: dict[str, Any]) -> str:
    """A whole SVG file of a chart that was made with plain colours."""
    return str(_vl_convert().vegalite_to_svg(_without_controls(spec), vl_version=VEGA_LITE))


def bitmap(spec: dict[str, Any], scale: float = 2.0) -> bytes:
    """A PNG of a chart that was made with plain colours, on white.

    Args:
        spec: Vega-Lite.
        scale: pixels a unit.
    """
    return bytes(_vl_convert().vegalite_to_png({**_without_controls(spec), "background": "#ffffff"}, vl_version=VEGA_LITE, scale=scale))


def inline(spec: dict[str, Any], name: str, label: str) -> str:
    """SVG to stand in a page: small, with colours from the page's CSS, an alternative text, and ids that no other picture has.

    Args:
        spec: Vega-Lite made with the page's colours.
        name: of the chart; makes ids unique.
        label: the alternative text.

    Returns:
        Markup. All text in it was escaped by Vega or here.
    """
    quiet = {**_without_controls(spec), "config": {**spec.get("config", {}), "aria": False}}
    text = str(_vl_convert().vegalite_to_svg(quiet, vl_version=VEGA_LITE))
    return shrunk(text, name, label)


def shrunk(text: str, name: str, label: str) -> str:
    """What :func:`inline` makes of Vega's SVG: the same picture in about a third of the bytes."""
    from markupsafe import escape

    # Only tags are touched: a name that looks like an attribute must stay as it is.
    text = re.sub(r"<[^<>]+>", lambda match: _tag(match.group(0), name), text)
    before = ""
    while before != text:
        before = text
        text = _EMPTY_GROUP.sub("", _EMPTY_PATH.sub("", text))
    return text.replace("<svg ", f'<svg role="img" aria-label="{escape(label)}" preserveAspectRatio="xMinYMin meet" ', 1)


def _tag(tag: str, name: str) -> str:
    if tag.startswith("</"):
        return tag
    tag = _OPACITY.sub("", _NOISE.sub("", tag))
    tag = _ID.sub(lambda match: f"{match.group(1)}{name}-{match.group(2)}", tag)
    return _NUMBER.sub(lambda match: f"{float(match.group(0)):.1f}".removesuffix(".0"), tag)


def _without_controls(spec: Any) -> Any:
    """The same chart without sliders and menus, which a picture cannot have; their values stay."""
    if isinstance(spec, dict):
        return {
            key: [{k: v for k, v in one.items() if k != "bind"} if isinstance(one, dict) else one for one in value]
            if key == "params" and isinstance(value, list)
            else value
            if key == "values"
            else _without_controls(value)
            for key, value in spec.items()
        }
    if isinstance(spec, list):
        return [_without_controls(inner) for inner in spec]
    return spec
