"""Generates the messages of `proto/` into the package: `python -m tests.tidy.protos`, or `make protos`.

Owns: the command line of the compiler, and the files it makes. Not: the definitions themselves (proto/).
The files are kept in the repository, because `make run` installs no compiler. A test compares them with this.
"""

import sys
from importlib.resources import files
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).parents[2]
PROTO = ROOT / "proto"
SOURCE = ROOT / "src"


def generate(target: Path) -> None:
    """Writes `palyra/gateway/v1/*_pb2.py` and their stubs below the target."""
    names = sorted(path.relative_to(PROTO).as_posix() for path in PROTO.rglob("*.proto"))
    includes = [f"--proto_path={PROTO}", f"--proto_path={files('grpc_tools') / '_proto'}"]
    status = protoc.main(["protoc", *includes, f"--python_out={target}", f"--pyi_out={target}", *names])
    if status != 0:
        raise SystemExit(f"the compiler failed with status {status}")


def generated(root: Path) -> dict[str, str]:
    """Every generated file below a folder, by its path."""
    found = sorted([*root.rglob("*_pb2.py"), *root.rglob("*_pb2.pyi")])
    return {path.relative_to(root).as_posix(): path.read_text(encoding="utf-8") for path in found}


if __name__ == "__main__":
    generate(SOURCE)
    sys.stdout.write("".join(f"wrote src/{name}\n" for name in generated(SOURCE)))
