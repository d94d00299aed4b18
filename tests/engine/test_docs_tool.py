"""The tool that docs/tools.md shows is a whole one: it is taken from the page and used."""

import re
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

from palyra.adapters.providers.scripted import Script
from palyra.core.events.tool import Outcome, ToolFinished
from tests.support.asking import ask, calls, finished, says
from tests.support.engines import OWNER, Workshop

pytestmark = pytest.mark.anyio
PAGE = Path(__file__).parents[2] / "docs" / "tools.md"


def taken_from_the_page(folder: Path) -> ModuleType:
    (block,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    path = folder / "text_count.py"
    path.write_text(block)
    spec = spec_from_file_location("text_count_of_the_page", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


async def test_tool_of_the_page_works_in_a_run(tmp_path: Path) -> None:
    turns = (calls("text.count", path="a.txt"), calls("text.count", path="../a.txt"), says("Counted."))
    workshop = Workshop(tmp_path / "home", [Script(turns=turns)])
    (workshop.workspace / "a.txt").write_text("one two\nthree\n")
    workshop.tools = [*workshop.tools, taken_from_the_page(tmp_path).TextCount()]
    async with workshop.open() as engine:
        events = await finished(engine, await engine.runs.start(OWNER, ask()))
    found = [(event.data.outcome, event.data.output) for event in events if isinstance(event.data, ToolFinished)]
    assert found[0] == (Outcome.OK, "a.txt: 2 lines, 3 words")
    assert found[1][0] is Outcome.DENIED
