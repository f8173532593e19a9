"""A Chromium without a screen, and what a page in it may not do."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from selenium import webdriver
from selenium.common.exceptions import (
    NoSuchElementException,
    StaleElementReferenceException,
    TimeoutException,
    WebDriverException,
)
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import Select, WebDriverWait

WAIT_S: Final = 20
POLL_S: Final = 0.03
SIZES: Final = {"desk": (1440, 900), "phone": (390, 844), "small": (320, 640)}
SCREENS: Final = Path(__file__).resolve().parents[3] / ".cache" / "test" / "screens"


def missing() -> str | None:
    """Return which program is missing for these tests, or None."""
    for program in ("chromium", "chromedriver"):
        if shutil.which(program) is None:
            return f"no {program} here"
    return None


def open_chromium() -> webdriver.Chrome:
    """Start the browser."""
    options = webdriver.ChromeOptions()
    options.binary_location = str(shutil.which("chromium"))
    for argument in (
        "--headless=new",
        "--no-sandbox",  # the tests run as root in containers; the pages are our own
        "--disable-dev-shm-usage",
        "--disable-gpu",
        "--disable-background-networking",
        "--disable-component-update",
        "--hide-scrollbars",
        "--lang=en-US",
        "--no-proxy-server",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options, Service(shutil.which("chromedriver")))
    driver.set_page_load_timeout(WAIT_S)
    driver.set_script_timeout(WAIT_S * 3)
    return driver


class Window:
    """The one window of a browser, showing pages of one server.

    Args:
        driver: The browser.
        base: The server's address; nothing may be asked of any other.
    """

    def __init__(self, driver: webdriver.Chrome, base: str) -> None:
        self.driver = driver
        self.base = base
        self.expected: list[str] = []  # parts of console lines that are no fault
        self.requested: list[str] = []

    # The window.

    def begin(self, token: str | None) -> None:
        """Start anew: no cookies but this session's, desktop size, light, with script."""
        self.driver.get("about:blank")
        self.command("Network.clearBrowserCookies")
        self.command("Emulation.setScriptExecutionDisabled", value=False)
        self.resize("desk")
        self.shade("light")
        self.driver.get_log("browser")
        self.driver.get_log("performance")
        if token is not None:
            self.until(lambda: self._keeps(token), "the browser keeps the session's cookie")

    def _keeps(self, token: str) -> bool:
        self.command(
            "Network.setCookie",
            name="sepp_admin",
            value=token,
            url=self.base,
            httpOnly=True,
            sameSite="Strict",
        )
        kept = self.command("Network.getCookies", urls=[self.base])["cookies"]
        return [cookie["value"] for cookie in kept] == [token]

    def command(self, method: str, /, **parameters: Any) -> Any:
        """Send a command of the DevTools protocol."""
        return self.driver.execute_cdp_cmd(method, parameters)

    def resize(self, size: str) -> None:
        """Become a desktop or a phone."""
        width, height = SIZES[size]
        is_phone = size != "desk"
        self.command(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=is_phone,
        )
        self.command("Emulation.setTouchEmulationEnabled", enabled=is_phone)

    def shade(self, theme: str) -> None:
        """Let the system ask for light or dark, and for calm in either case."""
        features = [
            {"name": "prefers-color-scheme", "value": theme},
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]
        self.command("Emulation.setEmulatedMedia", features=features)

    def shoot(self, name: str) -> Path:
        """Keep a picture of what is seen."""
        SCREENS.mkdir(parents=True, exist_ok=True)
        path = SCREENS / f"{name}.png"
        assert self.driver.save_screenshot(str(path))
        return path

    def overhang(self) -> int:
        """Return by how many pixels the page is wider than the window."""
        script = "return document.documentElement.scrollWidth - window.innerWidth"
        return int(self.driver.execute_script(script))

    # Pages.

    def open(self, path: str) -> None:
        """Go to a page of ours."""
        self.driver.get(self.base + path)

    @property
    def path(self) -> str:
        """Where the window is, with the query."""
        parts = urlsplit(self.driver.current_url)
        return parts.path + (f"?{parts.query}" if parts.query else "")

    def all(self, css: str) -> list[WebElement]:
        """Return all elements that match."""
        return list(self.driver.find_elements(By.CSS_SELECTOR, css))

    def one(self, css: str) -> WebElement:
        """Return the one element that matches and is shown; waits for it, and for the module."""
        return self.until(lambda: self._shown(css), f"{css} is shown")

    def words(self, css: str) -> str:
        """Return what an element says."""
        return str(self.until(lambda: self._shown(css).text, f"{css} says something"))

    def click(self, css: str) -> None:
        """Press something."""
        element = self.one(css)
        self.driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
        element.click()

    def go(self, css: str) -> None:
        """Press something that leads to another page, and wait for that page."""
        page = self.one("html")
        self.click(css)
        self.until(lambda: self.has_left(page), f"{css} leads on")
        self.one("body")

    def has_left(self, page: WebElement) -> bool:
        """Return whether the page of this element was left."""
        try:
            page.is_enabled()
        except StaleElementReferenceException:
            return True
        except WebDriverException as fault:  # between two pages
            return "document" in str(fault)
        return False

    def write(self, css: str, text: str) -> None:
        """Replace the text of a field."""
        field = self.one(css)
        field.clear()
        field.send_keys(text)

    def choose(self, css: str, value: str) -> None:
        """Choose from a list by what is shown."""
        Select(self.one(css)).select_by_visible_text(value)

    def press(self, *keys: str) -> None:
        """Press keys, wherever the focus is, once the page listens to them."""
        self.one("html")
        for key in keys:
            self.driver.switch_to.active_element.send_keys(key)

    def toast(self) -> str:
        """Return the sentence that tells the result of an action."""
        return self.words(".toast span")

    def until(self, look: Callable[[], Any], what: str) -> Any:
        """Return what `look` returns once that is something."""

        def found(_: webdriver.Chrome) -> Any:
            try:
                return look()
            except (NoSuchElementException, StaleElementReferenceException):
                return None

        try:
            return WebDriverWait(self.driver, WAIT_S, POLL_S).until(found)
        except TimeoutException:
            self.shoot("waited-in-vain")
            raise AssertionError(f"never: {what}; at {self.path}: {self._said()}") from None

    # What was asked for and what went wrong.

    def check(self) -> None:
        """Assert that the console is clean and that nothing was asked of anybody else.

        Raises:
            AssertionError: It says what.
        """
        lines = [
            entry["message"]
            for entry in self.driver.get_log("browser")
            if entry["level"] not in ("DEBUG", "INFO")
        ]
        left = [line for line in lines if not any(part in line for part in self.expected)]
        assert left == [], "the console is not clean"
        assert self.strangers() == []

    def strangers(self) -> list[str]:
        """Return what was requested elsewhere."""
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                self.requested.append(message["params"]["request"]["url"])
        ours = (f"{self.base}/", "about:blank", "data:", "blob:", "chrome://")
        return [url for url in self.requested if not url.startswith(ours)]

    def _shown(self, css: str) -> WebElement:
        # Before that the module has not run: keys do nothing, buttons act as without script.
        if self.driver.execute_script("return document.readyState") != "complete":
            raise NoSuchElementException("the page is still loading")
        for element in self.all(css):
            if element.is_displayed():
                return element
        raise NoSuchElementException(css)

    def _said(self) -> str:
        kept = self.command("Network.getCookies", urls=[self.base])["cookies"]
        names = [cookie["name"] for cookie in kept]
        return f"cookies {names}: {self.driver.find_element(By.TAG_NAME, 'body').text[:500]}"


__all__ = ["SIZES", "Keys", "Window", "missing", "open_chromium"]
