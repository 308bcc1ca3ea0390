"""A real Chromium, offline, with its network log and console open to the tests."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

selenium = pytest.importorskip("selenium", reason="selenium is not installed here")
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--window-size=1180,1600",
)


class Opened:
    """One page in the browser."""

    def __init__(self, driver: Any, path: Path) -> None:
        self.driver = driver
        self.path = path

    def script(self, text: str, *arguments: Any) -> Any:
        return self.driver.execute_script(text, *arguments)

    def requests(self) -> list[str]:
        """Addresses the page asked for, the browser's own start-up left out."""
        found = []
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                address = message["params"]["request"]["url"]
                if not address.startswith(("chrome:", "chrome-extension:", "data:")):
                    found.append(address)
        return found

    def console(self) -> list[str]:
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def signal(self, chart: str, name: str, value: Any) -> None:
        """Moves a slider the way a hand does: through its input element, or a menu through its choice."""
        self.driver.set_script_timeout(20)
        done = self.driver.execute_async_script(
            """const [chart, name, value, done] = arguments;
            const view = window.wiretaxViews[chart];
            view.signal(name, value).runAsync().then(() => done(view.signal(name)), (error) => done(String(error)));""",
            chart,
            name,
            value,
        )
        assert done == value


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    if CHROMIUM is None or DRIVER is None:
        pytest.skip("chromium and chromium-driver are not installed here")
    from selenium.webdriver import Chrome, ChromeOptions
    from selenium.webdriver.chrome.service import Service

    options = ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    browser = Chrome(options=options, service=Service(DRIVER))
    yield browser
    browser.quit()


@pytest.fixture
def open_page(driver: Any, tmp_path: Path) -> Callable[..., Opened]:
    """Opens a page from its text and waits until its charts are drawn."""

    def opened(page: str, *, ready: str = "1") -> Opened:
        from selenium.webdriver.support.ui import WebDriverWait

        path = tmp_path / "page.html"
        path.write_text(page, encoding="utf-8")
        driver.get_log("performance"), driver.get_log("browser")
        driver.get(path.as_uri())
        result = Opened(driver, path)
        if ready:
            WebDriverWait(driver, 40, poll_frequency=0.05).until(lambda _: result.script("return document.documentElement.dataset.ready"))
            assert result.script("return document.documentElement.dataset.ready") == ready, result.console()
        return result

    return opened
