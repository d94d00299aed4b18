"""Roots that the operator names through links, one below the other."""

from pathlib import Path

import pytest

from tests.runtimes.shells import run

pytestmark = pytest.mark.anyio


async def test_a_root_below_a_linked_root_is_reached_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "real/inner").mkdir(parents=True)
    (tmp_path / "named").symlink_to("real")
    result = await run(f"echo x > {tmp_path}/named/inner/file", tmp_path / "named", tmp_path / "named/inner")
    assert result.error is None
    assert (tmp_path / "real/inner/file").read_text() == "x\n"
