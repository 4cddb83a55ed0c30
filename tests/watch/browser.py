"""The system's Chromium, driven by Playwright: for the page's tests and its measurements."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def found() -> str | None:
    """Where Chromium is, if there is one."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


@contextmanager
def chromium(path: str) -> Iterator[Browser]:
    """A browser of its own, for as long as the context."""
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []  # it refuses root a sandbox
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=arguments)
        try:
            yield browser
        finally:
            browser.close()


def until(page: Page, condition: str, within: float = 20.0) -> Any:
    """Wait until an expression holds in the page, and give it.

    Playwright's own wait is by ``eval`` in the page, which the page's policy forbids.
    """
    limit = time.monotonic() + within
    while not (seen := page.evaluate(condition)):
        if time.monotonic() > limit:
            raise AssertionError(f"not within {within} s: {condition}")
        page.wait_for_timeout(30)
    return seen
