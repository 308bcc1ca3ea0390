"""Makes the pictures of docs/report.md: pages of example runs, opened in a headless Chromium, light, dark, narrow and on paper.

    .venv/bin/python docs/make_screenshots.py            needs chromium (Debian: apt-get install chromium), pip install 'wiretax[report]'
    .venv/bin/python docs/make_screenshots.py --pages F  only writes the pages, into folder F

The pair of H200 is a recording of a real machine. The other machines are constructed and their pages say so.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from pages import pages  # noqa: E402

OUT = ROOT / "docs" / "screenshots"
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--virtual-time-budget=12000",
)


@dataclass(frozen=True)
class Shot:
    """One picture: which page, how large the window, which theme."""

    file: str
    page: str
    width: int
    height: int
    dark: bool = False
    scale: float = 1.0


SHOTS = (
    Shot("h200-pair.png", "h200_pair", 1180, 4700),
    Shot("h200-pair-dark.png", "h200_pair", 1180, 1500, dark=True),
    Shot("budget-box.png", "budget_box", 1180, 2500),
    Shot("sixty-four-gpus.png", "sixty_four", 1180, 2500),
    Shot("facts-only.png", "inspected", 1180, 2300),
    Shot("narrow.png", "h200_pair", 500, 2200),
    Shot("comparison.png", "comparison", 1180, 2400),
)
NAMES = tuple(dict.fromkeys(shot.page for shot in SHOTS))


def take(chromium: str, shot: Shot, page: Path) -> None:
    """One screenshot."""
    theme = [f"--blink-settings=preferredColorScheme={0 if shot.dark else 1}"]
    with tempfile.TemporaryDirectory() as profile:
        command = [chromium, *FLAGS, *theme, f"--user-data-dir={profile}", f"--window-size={shot.width},{shot.height}"]
        command += [f"--screenshot={OUT / shot.file}", page.as_uri()]
        subprocess.run(command, check=True, capture_output=True, timeout=120)


def main() -> None:
    """Writes all pictures, or only the pages."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=Path, help="only write the pages into this folder")
    folder = parser.parse_args().pages
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    with tempfile.TemporaryDirectory() as temporary:
        place = folder if folder is not None else Path(temporary)
        place.mkdir(parents=True, exist_ok=True)
        for name in NAMES:
            (place / f"{name}.html").write_text(pages(name), encoding="utf-8")
        if folder is not None:
            return
        if chromium is None:
            sys.exit("there is no chromium here (Debian: apt-get install chromium)")
        OUT.mkdir(exist_ok=True)
        for shot in SHOTS:
            take(chromium, shot, place / f"{shot.page}.html")
            print(f"{shot.file}: {(OUT / shot.file).stat().st_size // 1000} kB")


if __name__ == "__main__":
    main()
