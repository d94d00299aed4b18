"""From a file on the command line to the provider's door, with the daemon killed in between."""

import asyncio
import base64
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.daemons import Daemon, plain_environment
from tests.support.images import png
from tests.support.provider_answers import hello
from tests.support.stand_in_provider import Played, StandInProvider
from tests.support.waiting import until

pytestmark = pytest.mark.anyio

CONFIG = """
[[provider]]
name = "standin"
kind = "anthropic-messages"
base_url = "URL"
api_key = "env:STANDIN_KEY"

[[model]]
name = "sighted"
provider = "standin"
vision = true
input_usd_per_mtok = 1.0
output_usd_per_mtok = 1.0
"""


async def test_image_on_the_command_line_reaches_the_provider_over_a_kill(tmp_path: Path) -> None:
    photo = png(3, 2, filler=b"x" * 1_500_000)
    (tmp_path / "photo.png").write_bytes(photo)
    async with StandInProvider(Played(is_silent=True), Played(body=hello("anthropic-messages"))) as server:
        daemon = Daemon(tmp_path / "home", STANDIN_KEY="no-key-at-all")
        (daemon.home / "palyra.toml").write_text(CONFIG.replace("URL", server.url))
        await asyncio.to_thread(daemon.start)
        run_id = await asyncio.to_thread(start_run, daemon, tmp_path / "photo.png")
        await until(lambda: server.asked)
        daemon.kill()
        await asyncio.to_thread(daemon.start)
        last = await asyncio.to_thread(lambda: [frame["type"] for frame in daemon.follow(run_id)][-1])
        assert await asyncio.to_thread(daemon.stop) == 0
    assert last == "run.done"
    assert len(server.asked) == 2
    for asked in server.asked:
        image, text = asked.body["messages"][0]["content"]
        assert base64.b64decode(image["source"]["data"], validate=True) == photo
        assert text["text"] == "What is this?\n[image photo.png]"


def start_run(daemon: Daemon, photo: Path) -> str:
    command = [sys.executable, "-m", "palyra", "run", "What is this?", "--no-wait", "--attach", str(photo)]
    own = {"PALYRA_HOME": str(daemon.home), "PALYRA_SERVER__HTTP": f"127.0.0.1:{daemon.port}"}
    done = subprocess.run(
        command, env={**plain_environment(), **own}, capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout.strip()
