"""The program of the reading process: one document on its input, its readable text on its output.

Does not own: starting and killing the process (reader).
It limits itself before it reads a byte: CPU time, memory, no files to write, no core. So a document that asks for too
much ends this process alone.
"""

import resource
import sys

import msgspec

from palyra.ports.readable import ReadableText

CPU_S = 15
MEMORY_BYTES_MAX = 768 * 1024 * 1024
_FILES_MAX = 64  # Modules are still imported one by one.


class ReadingTask(msgspec.Struct, frozen=True, kw_only=True):
    """The first line of the input. The body follows it."""

    media_type: str
    chars_max: int


class ReadingReply(msgspec.Struct, frozen=True, kw_only=True):
    """Either the text, or why there is none."""

    read: ReadableText | None = None
    reason: str = ""


def main() -> None:
    limit_process()
    from palyra.adapters.readable.extraction import extract
    from palyra.core.errors import Invalid

    source = sys.stdin.buffer
    task = msgspec.json.decode(source.readline(), type=ReadingTask)
    try:
        reply = ReadingReply(read=extract(source.read(), task.media_type, task.chars_max))
    except Invalid as refused:
        reply = ReadingReply(reason=refused.message)
    except MemoryError:
        reply = ReadingReply(reason="reading it takes too much memory")
    sys.stdout.buffer.write(msgspec.json.encode(reply))
    sys.stdout.buffer.flush()


def limit_process() -> None:
    for kind, limit in (
        (resource.RLIMIT_AS, MEMORY_BYTES_MAX),
        (resource.RLIMIT_CPU, CPU_S),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NOFILE, _FILES_MAX),
    ):
        resource.setrlimit(kind, (limit, limit))


if __name__ == "__main__":
    main()
