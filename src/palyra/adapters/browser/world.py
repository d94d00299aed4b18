"""The isolated world of a page: running the script in it, and giving it pictures of the page to judge by.

Does not own: the script (outline_script, paint_script), when a page is read (tab).
"""

import asyncio

from playwright.async_api import CDPSession

from palyra.adapters.browser.outline_script import WALK_MS

SCREENS_MAX = 24  # Text further below than so many pictures show is judged by its style.


async def evaluate(cdp: CDPSession, world: int, expression: str) -> object:
    """Returns the value of an expression, and None if it raises."""
    asked = {
        "expression": expression,
        "contextId": world,
        "returnByValue": True,
        "awaitPromise": True,
        "timeout": WALK_MS * 2,
    }
    answer: dict[str, dict[str, object]] = await cdp.send("Runtime.evaluate", asked)
    return None if "exceptionDetails" in answer else answer["result"].get("value")


async def show_pictures(cdp: CDPSession, world: int, limit_s: float) -> None:
    """Scrolls through the page and gives the script a picture of each screen, as far as the time allows."""
    clock = asyncio.get_running_loop()
    until_s = clock.time() + limit_s
    count = await evaluate(cdp, world, "palyra.gather()")
    if not isinstance(count, int):
        return
    for step in range(min(count, SCREENS_MAX)):
        if count > 1:
            await evaluate(cdp, world, f"palyra.turn({step})")
        try:
            async with asyncio.timeout_at(until_s):
                taken = await cdp.send("Page.captureScreenshot", {"format": "png", "optimizeForSpeed": True})
        except TimeoutError:
            break
        left_ms = max(0, int((until_s - clock.time()) * 1000))
        await evaluate(cdp, world, f"palyra.judge('{taken['data']}', {left_ms})")
    if count > 1:
        await evaluate(cdp, world, "palyra.back()")
