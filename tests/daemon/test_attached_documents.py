"""Documents from the command line to the provider's door, with the daemon killed in between; and what is refused."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from tests.daemon.test_attached_images import CONFIG
from tests.support.daemons import Daemon, plain_environment
from tests.support.documents import encrypted_pdf, pdf
from tests.support.provider_answers import hello
from tests.support.stand_in_provider import Played, StandInProvider
from tests.support.waiting import until

pytestmark = pytest.mark.anyio


async def test_documents_on_the_command_line_reach_the_provider_over_a_kill(tmp_path: Path) -> None:
    (tmp_path / "report.pdf").write_bytes(pdf("Quarterly words.", title="Report"))
    (tmp_path / "numbers.csv").write_text("id,name\n1,a\n2,b\n")
    (tmp_path / "locked.pdf").write_bytes(encrypted_pdf("x"))
    async with StandInProvider(Played(is_silent=True), Played(body=hello("anthropic-messages"))) as server:
        daemon = Daemon(tmp_path / "home", STANDIN_KEY="no-key-at-all")
        (daemon.home / "palyra.toml").write_text(CONFIG.replace("URL", server.url))
        await asyncio.to_thread(daemon.start)
        refused = await asyncio.to_thread(start_run, daemon, tmp_path / "locked.pdf")
        started = await asyncio.to_thread(start_run, daemon, tmp_path / "report.pdf", tmp_path / "numbers.csv")
        run_id = started.stdout.strip()
        await until(lambda: server.asked)
        daemon.kill()
        await asyncio.to_thread(daemon.start)
        last = await asyncio.to_thread(lambda: [frame["type"] for frame in daemon.follow(run_id)][-1])
        assert await asyncio.to_thread(daemon.stop) == 0
    assert refused.returncode == 1
    assert "attachment_invalid" in refused.stderr
    assert "the PDF is encrypted" in " ".join(refused.stderr.split())
    assert (started.returncode, last, len(server.asked)) == (0, "run.done", 2)
    before, after = (asked.body["messages"] for asked in server.asked)
    assert before == after
    told = str(before)
    assert "Title: Report" in told
    assert "Quarterly words." in told
    assert "1 | a\\n2 | b" in told
    assert "numbers.csv, text/csv, 16 bytes, 3 rows of 2 columns" in told


def start_run(daemon: Daemon, *files: Path) -> "subprocess.CompletedProcess[str]":
    attached = [word for file in files for word in ("--attach", str(file))]
    command = [sys.executable, "-m", "palyra", "run", "What is this?", "--no-wait", *attached]
    own = {"PALYRA_HOME": str(daemon.home), "PALYRA_SERVER__HTTP": f"127.0.0.1:{daemon.port}"}
    return subprocess.run(
        command, env={**plain_environment(), **own}, capture_output=True, text=True, timeout=60, check=False
    )
