"""Makes the script that draws the charts of a report: Vega, Vega-Lite and vega-embed out of vl-convert, compressed.

Run it after a new version of vl-convert or Altair; a test fails when the bundle draws another grammar than Altair writes.

python scripts/make_vega_bundle.py
"""

from __future__ import annotations

import gzip
from pathlib import Path

import vl_convert

from wiretax.show.svg import VEGA_LITE

OUT = Path(__file__).parents[1] / "src" / "wiretax" / "show" / "assets" / "vega.js.gz"


def main() -> None:
    """Writes the file; see the module."""
    script = vl_convert.javascript_bundle(vl_version=VEGA_LITE).replace("</script", "<\\/script").replace("<!--", "<\\!--")
    # No time in the header: the same versions give the same bytes.
    OUT.write_bytes(gzip.compress(script.encode("utf-8"), compresslevel=9, mtime=0))
    print(f"{OUT}: {len(script)} bytes, {OUT.stat().st_size} compressed")


if __name__ == "__main__":
    main()
