"""The daemon's front page in a real browser: the link to a question leads to the commands that answer it."""

from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.browser.scenes import scene
from tests.openai_api.serving import serve
from tests.support.engines import Workshop

pytestmark = pytest.mark.anyio
QUESTION = "4F4SNS71441F0BRV0DZAHBAHGM"


async def test_the_link_to_a_question_shows_the_commands_without_a_log_in(tmp_path: Path) -> None:
    async with serve(Workshop(tmp_path / "home", [])) as served, scene(tmp_path / "profiles") as s:
        s.guard.open_to(urlsplit(served.address).port or 0)
        output = await s.output("open", url=f"{served.address}/#/approvals/{QUESTION}")
        for verb in ("show", "allow", "deny"):
            assert f"palyra approvals {verb} {QUESTION}" in output
        assert "Not logged in" in output
        assert "approvals show" not in await s.output("open", url=f"{served.address}/#/approvals/<b>x")
