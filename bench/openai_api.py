"""What the OpenAI-compatible API costs. Owns: tokens a second through /v1 beside the plain stream. Not: rivals (stream).

The same loopback model is asked through one daemon, by `POST /api/v1/runs` and by `POST /v1/chat/completions`, both as
streams whose whole texts are checked. Rounds take turns, so that a slow moment of the machine hits both.
Usage: python -m bench.openai_api [--quick] [--rounds N]
"""

import argparse
import statistics
import subprocess
import sys

import msgspec

from bench import _upstream
from bench._daemon import ROOT, Daemon, made_home
from bench._daemon import running as daemon_running
from bench._upstream_load import Order, Outcome

LOAD_TIMEOUT_S = 600.0
WANTED_SHARE = 0.9  # Of the plain stream's rate; a chunk is about as long as a frame of ours.
CASES = (
    ("1 stream", "full-2000", 1, 16),
    ("32 streams", "full-2000", 32, 4),
    ("32 streams, by token", "each-2000", 32, 2),
)
QUICK_CASES = (("1 stream", "full-500", 1, 2), ("8 streams", "full-500", 8, 2))
WAYS = {"/api/v1/runs": "palyra", "/v1/chat": "openai"}

CONFIG = """
[server]
http = "127.0.0.1:0"
[[provider]]
name = "upstream"
kind = "openai-chat"
base_url = "http://127.0.0.1:{port}"
{models}
[[agent]]
name = "default"
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="little work in one round, for a check that it still runs")
    parser.add_argument("--rounds", type=int, help="how often each case is measured (5; 1 with --quick)")
    options = parser.parse_args()
    rounds_count = options.rounds or (1 if options.quick else 5)
    cases = QUICK_CASES if options.quick else CASES
    models = sorted({"full-20", *(model for _, model, *_ in cases)})
    with _upstream.running() as port, made_home() as home:
        tables = "\n".join(f'[[model]]\nname = "{name}"\nprovider = "upstream"' for name in models)
        (home / "palyra.toml").write_text(CONFIG.format(port=port, models=tables))
        with daemon_running(home) as daemon:
            for kind in WAYS.values():
                load(daemon, kind, "full-20", 8, 8)
            print(f"tokens a second, whole texts checked, {rounds_count} rounds:")
            for name, model, streams_count, answers_count in cases:
                measure(daemon, name, (model, streams_count, answers_count), rounds_count)


def measure(daemon: Daemon, name: str, case: tuple[str, int, int], rounds_count: int) -> None:
    rates: dict[str, list[float]] = {way: [] for way in WAYS}
    firsts: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(rounds_count):
        for way, kind in WAYS.items():
            outcome = load(daemon, kind, *case)
            rates[way].append(outcome.tokens_count / outcome.wall_s)
            firsts[way].append(statistics.median(outcome.first_ms))
    print(f"  {name}:")
    for way, found in rates.items():
        first = statistics.median(firsts[way])
        print(
            f"    {way:14} best {max(found):9,.0f}, median {statistics.median(found):9,.0f}; first token {first:.1f} ms"
        )
    plain, ours = (statistics.median(rates[way]) for way in WAYS)
    print(f"    /v1 to the plain stream {ours / plain:.2f} (wanted >= {WANTED_SHARE:g})", flush=True)


def load(daemon: Daemon, kind: str, model: str, streams_count: int, answers_count: int) -> Outcome:
    order = Order(
        kind=kind,
        port=daemon.port,
        token=daemon.token,
        model=model,
        streams_count=streams_count,
        answers_count=answers_count,
    )
    command = [sys.executable, "-m", "bench._upstream_load", msgspec.json.encode(order).decode()]
    done = subprocess.run(command, stdout=subprocess.PIPE, cwd=ROOT, check=True, timeout=LOAD_TIMEOUT_S)
    return msgspec.json.decode(done.stdout, type=Outcome)


if __name__ == "__main__":
    main()
