"""Starts and stops the playwright driver. Does not own: the browsers it drives (chromium)."""

import asyncio

import structlog
from playwright.async_api import Error as PlaywrightError
from playwright.async_api import Playwright, async_playwright

from palyra.core.errors import Unavailable

log = structlog.get_logger()

START_S = 20.0


async def start_driver() -> Playwright:
    """Starts the driver. Raises Unavailable `browser_failed`."""
    try:
        async with asyncio.timeout(START_S):
            return await async_playwright().start()
    except (PlaywrightError, OSError, TimeoutError) as cause:
        raise Unavailable("browser_failed", "playwright's driver did not start; install the extra again") from cause


async def is_answering(driver: Playwright) -> bool:
    """Tells whether the driver still works. It makes a context for that, which sends no request."""
    try:
        async with asyncio.timeout(START_S):
            await (await driver.request.new_context()).dispose()
    except (PlaywrightError, OSError, TimeoutError):
        return False
    return True


async def stop_driver(driver: Playwright, limit_s: float) -> None:
    try:
        async with asyncio.timeout(limit_s):
            await driver.stop()
    except (PlaywrightError, OSError, TimeoutError) as fault:
        log.warning("browser_driver_stuck", why=type(fault).__name__)
