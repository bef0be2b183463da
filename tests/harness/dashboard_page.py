"""The page at ``/`` in a browser: what somebody who looks at it sees and does."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException, TimeoutException
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import Select, WebDriverWait

_SECONDS = 30
WIDTHS = (320, 768, 1280)
"""Pixels of a small phone, a tablet and a desktop."""
SCHEMES = ("light", "dark")


def choose(field: WebElement, words: str) -> None:
    """Chooses the first option whose text begins with ``words``, with the arrow keys. If its letters were
    typed, and the browser got them slowly, the browser would take each letter for the beginning of another
    option.
    """
    place = [option.text.startswith(words) for option in Select(field).options].index(True)
    field.send_keys(Keys.HOME, *[Keys.ARROW_DOWN] * place)


def enter(field: WebElement, value: str) -> None:
    """Replaces the value of a field, or chooses an option."""
    if field.tag_name == "select":
        choose(field, value)
    else:
        field.clear()
        field.send_keys(value)


class Page:
    def __init__(self, browser: webdriver.Chrome, url: str) -> None:
        self.browser = browser
        self.url = url
        self.waiting = WebDriverWait(browser, _SECONDS, poll_frequency=0.1)

    def go(self, place: str) -> None:
        self.browser.get("about:blank")
        self.browser.get(f"{self.url}/#{place}")

    def appear(self, width: int, scheme: str) -> None:
        """Makes the window as wide as a screen, and its color scheme the one that the machine prefers."""
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})

    def check_fits(self, width: int) -> None:
        """Nothing reaches beyond the window."""
        script = """
        const { scrollWidth, clientWidth } = document.documentElement;
        return [innerWidth, scrollWidth - clientWidth];
        """
        assert self.browser.execute_script(script) == [width, 0]

    def sees(self, *words: str) -> None:
        """Waits until all of it is there."""
        self.until(lambda: all(word in self.text() for word in words), f"{words} are not in")

    def until(self, condition: Callable[[], bool], failure: str) -> None:
        """Waits for a condition; otherwise the test fails with ``failure`` and the text of the page."""
        try:
            self.waiting.until(lambda _: condition())
        except TimeoutException:
            pytest.fail(f"{failure}:\n{self.text()}")

    def misses(self, words: str) -> None:
        self.waiting.until(lambda _: words not in self.text())

    def text(self) -> str:
        # In one call: what is shown may be another element a moment later.
        return str(self.browser.execute_script("return document.body.innerText"))

    def element(self, selector: str) -> WebElement:
        found: WebElement = self.waiting.until(lambda page: page.find_element(By.CSS_SELECTOR, selector))
        return found

    def press(self, *keys: str) -> None:
        for key in keys:
            self.browser.switch_to.active_element.send_keys(key)

    def push(self, words: str, within: str = "body") -> None:
        """Waits for a button, by what it says, and clicks it.

        The browser clicks at the position of the button. If new statistics move it in this moment, the click
        reaches nothing, and a user would click again.
        """
        path = f".//button[normalize-space()='{words}'] | .//summary[normalize-space()='{words}']"
        # A new page, to which the click has led, has no such variable.
        listen = """
        window.clicked = false;
        const clicked = () => { window.clicked = true; };
        arguments[0].addEventListener("click", clicked, { capture: true, once: true });
        """
        for _ in range(5):
            found: WebElement = self.waiting.until(
                lambda _: self.element(within).find_element(By.XPATH, path), f"no button {words!r}"
            )
            with suppress(StaleElementReferenceException):
                self.browser.execute_script(listen, found)
                found.click()
                if self.browser.execute_script("return window.clicked !== false"):
                    return
        pytest.fail(f"no click reaches the button {words!r}")

    def fill(self, **values: str) -> None:
        """Fields of the dialog that is open."""
        for name, value in values.items():
            enter(self.element(f"dialog [name={name}]"), value)

    def check_console(self) -> None:
        assert self.browser.get_log("browser") == []
