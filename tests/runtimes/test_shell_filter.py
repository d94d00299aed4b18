"""The filter, run as the kernel would, for both machines: also the one that this test does not run on."""

import errno
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.adapters.runtimes.shell.filter import _ABSENT, _DENIED, make_filter
from palyra.adapters.runtimes.shell.system_calls import MACHINES

ALLOW, KILL, ERROR = 0x7FFF0000, 0x80000000, 0x00050000
NAMES = list(MACHINES)


def judged(machine: str, number: int, *arguments: int, audit: int | None = None) -> int:
    """What the filter says of a call. Four instructions are all it uses."""
    audit = MACHINES[machine].audit if audit is None else audit
    told = struct.pack("<IIQ6Q", number, audit, 0, *[*arguments, 0, 0, 0, 0, 0, 0][:6])
    program = [
        struct.unpack("=HBBI", bytes(word)) for word in zip(*[iter(make_filter(machine) or b"")] * 8, strict=True)
    ]
    at, held = 0, 0
    while True:
        code, if_true, if_false, operand = program[at]
        at += 1
        match code:
            case 0x20:
                (held,) = struct.unpack_from("<I", told, operand)
            case 0x15:
                at += if_true if held == operand else if_false
            case 0x35:
                at += if_true if held >= operand else if_false
            case 0x45:
                at += if_true if held & operand else if_false
            case 0x06:
                return operand
            case _:
                raise AssertionError(f"instruction {code:#x}")


def named(machine: str, name: str, *arguments: int) -> int:
    return judged(machine, MACHINES[machine].numbers[name], *arguments)


@pytest.mark.parametrize("machine", NAMES)
def test_listed_calls_are_refused_and_no_name_is_misspelled(machine: str) -> None:
    numbers = MACHINES[machine].numbers
    assert {named(machine, name) for name in _DENIED if name in numbers} == {ERROR | errno.EPERM}
    assert {named(machine, name) for name in _ABSENT} == {ERROR | errno.ENOSYS}
    assert set(_DENIED) | set(_ABSENT) <= set(MACHINES["x86_64"].numbers)
    assert len(set(numbers.values())) == len(numbers)


@pytest.mark.parametrize("machine", NAMES)
def test_arguments_decide_where_a_call_is_needed(machine: str) -> None:
    refused = ERROR | errno.EPERM
    assert named(machine, "clone", 0x11) == named(machine, "unshare", 0x400) == ALLOW
    for flag in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000, 0x80):
        assert named(machine, "clone", flag | 0x11) == named(machine, "unshare", flag) == refused
    assert named(machine, "ioctl", 0, 0x5401) == ALLOW
    assert named(machine, "ioctl", 0, 0x5412) == named(machine, "ioctl", 0, 0x541C | 1 << 32) == refused
    assert [named(machine, "socket", family) for family in (1, 2, 10, 16)] == [ALLOW] * 4
    assert {named(machine, "socket", family) for family in (0, 3, 17, 31, 38, 40, 44)} == {ERROR | errno.EAFNOSUPPORT}
    assert named(machine, "personality", 0xFFFFFFFF) == named(machine, "personality", 0) == ALLOW
    assert named(machine, "personality", 0x0040000) == refused


@pytest.mark.parametrize("machine", NAMES)
def test_set_id_bits_are_refused_wherever_a_mode_is_given(machine: str) -> None:
    numbers = MACHINES[machine].numbers
    for name, place in {
        "chmod": 1,
        "fchmod": 1,
        "fchmodat": 2,
        "fchmodat2": 2,
        "creat": 1,
        "mknod": 1,
        "mknodat": 2,
    }.items():
        if name in numbers:
            assert named(machine, name, *[0] * place, 0o755) == ALLOW
            assert {named(machine, name, *[0] * place, mode) for mode in (0o4755, 0o2755)} == {ERROR | errno.EPERM}
    for name, lead in {"open": [0], "openat": [0, 0]}.items():
        if name in numbers:
            assert named(machine, name, *lead, 0x41, 0o644) == named(machine, name, *lead, 0, 0o6755) == ALLOW
            assert named(machine, name, *lead, 0x41, 0o4755) == ERROR | errno.EPERM


@pytest.mark.parametrize("machine", NAMES)
def test_another_machine_or_calling_form_is_killed(machine: str) -> None:
    assert judged(machine, 0, audit=0x40000003) == KILL
    assert judged("x86_64", 0x40000000) == judged("x86_64", 0xFFFFFFFF) == KILL


@given(st.sampled_from(NAMES), st.integers(0, 600), st.lists(st.integers(0, 2**64 - 1), min_size=6, max_size=6))
def test_every_call_is_answered_and_unlisted_ones_are_allowed(machine: str, number: int, arguments: list[int]) -> None:
    answer = judged(machine, number, *arguments)
    assert answer in (ALLOW, ERROR | errno.EPERM, ERROR | errno.ENOSYS, ERROR | errno.EAFNOSUPPORT)
    if number not in MACHINES[machine].numbers.values():
        assert answer == ALLOW


def test_a_machine_without_a_table_has_no_filter() -> None:
    assert make_filter("riscv64") is None
