"""Editors that are broken, hasty or hostile: nothing goes on that was stopped, and nothing happens twice."""

from pathlib import Path
from typing import Any

import pytest

from tests.acp.test_acp import Editor, editing, prompt
from tests.openai_api.serving import serve, workshop_at
from tests.support.asking import calls, says

pytestmark = pytest.mark.anyio
ALLOW = {"outcome": {"outcome": "selected", "optionId": "allow"}}


async def answer_of(editor: Editor, number: str) -> dict[str, Any]:
    while (message := await editor.next()).get("id") != number:
        editor.hear(message)
    return message


async def test_a_prompt_that_is_cancelled_before_its_run_has_begun_is_cancelled(tmp_path: Path) -> None:
    workshop, _ = workshop_at(tmp_path, calls("mark.send", text="mail"), says("Done."))
    async with serve(workshop) as served, editing(served, tmp_path) as editor:
        session_id = await editor.begin()
        editor.answers["session/request_permission"] = ALLOW
        editor.send({"id": "p", "method": "session/prompt", "params": {"sessionId": session_id, "prompt": prompt("x")}})
        editor.send({"method": "session/cancel", "params": {"sessionId": session_id}})
        assert (await answer_of(editor, "p")).get("result") == {"stopReason": "cancelled"}
    assert workshop.executed() == []
