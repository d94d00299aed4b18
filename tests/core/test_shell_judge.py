"""The shell judge: what only reads and stays in the workspace is free; everything else asks, and says why."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palyra.adapters.shell import TreeSitterShell
from palyra.core.shell import Code, Judgement, Network, Scope, judge

PARSER = TreeSitterShell()
SCOPE = Scope(cwd="/w", roots=("/w",), home="/home/u")


def look(text: str, network: Network = Network.CLOSED) -> Judgement:
    return judge(text, Scope(cwd=SCOPE.cwd, roots=SCOPE.roots, home=SCOPE.home, network=network), PARSER.parse)


FREE = [
    "ls -la",
    "cat a | grep b | wc -l",
    "echo hi",
    "git status",
    "git log --oneline -5",
    "find . -name x -exec cat {} +",
    "find . -name '*.md' -print0 | xargs -0 cat",
    "sh -c 'ls'",
    "env FOO=1 ls",
    "timeout 5 ls",
    "cat other/../x",
    "ls $(pwd)",
    "cat <<E\nhi\nE",
    "for i in 1 2; do cat $i; done",
    "if true; then ls; fi",
    "ls > /dev/null 2>&1",
    "sed s/a/b/ f",
    "awk '{print}' f",
    "ls && cat f || echo none",
    "echo $((1+1))",
]
ASKS = {
    "echo x >> f": Code.WRITES,
    "echo x > f": Code.WRITES,
    "sed -i s/a/b/ f": Code.WRITES,
    "git push": Code.WRITES,
    "git log --output=f": Code.WRITES,
    "rm x": Code.UNKNOWN_PROGRAM,
    "ls; rm x": Code.UNKNOWN_PROGRAM,
    "ls $(rm x)": Code.UNKNOWN_PROGRAM,
    "echo `rm x`": Code.UNKNOWN_PROGRAM,
    "cat <(rm x)": Code.UNKNOWN_PROGRAM,
    "cat <<E\n$(rm x)\nE": Code.UNKNOWN_PROGRAM,
    "find . -exec rm {} ;": Code.UNKNOWN_PROGRAM,
    "find . -delete": Code.WRITES,
    "xargs rm < l": Code.UNKNOWN_PROGRAM,
    "find . -name 'zz*' | xargs sort": Code.UNKNOWN_VALUE,
    "uniq ./*": Code.WRITES,
    "sed 't\nwout' f": Code.RUNS_CODE,
    'awk \'BEGIN{ exit /"/ + system("id") + "/" } # "\'': Code.RUNS_CODE,
    "pytest --help": Code.UNKNOWN_PROGRAM,
    "sh -c 'rm x'": Code.UNKNOWN_PROGRAM,
    "bash -c \"sh -c 'rm x'\"": Code.UNKNOWN_PROGRAM,
    "env rm x": Code.UNKNOWN_PROGRAM,
    "timeout 5 nice rm x": Code.UNKNOWN_PROGRAM,
    "awk 'BEGIN{system(\"rm x\")}'": Code.RUNS_CODE,
    "rg --pre x foo": Code.RUNS_CODE,
    "LD_PRELOAD=x ls": Code.SETS_ENVIRONMENT,
    "cat ../../x": Code.OUTSIDE_WORKSPACE,
    "cat /etc/passwd": Code.OUTSIDE_WORKSPACE,
    "cat ~/.ssh/id_rsa": Code.OUTSIDE_WORKSPACE,
    "cd / && cat etc/passwd": Code.OUTSIDE_WORKSPACE,
    "cat < /etc/passwd": Code.OUTSIDE_WORKSPACE,
    "$CMD": Code.UNKNOWN_VALUE,
    "cat $X": Code.UNKNOWN_VALUE,
    "curl https://example.com": Code.NEEDS_NETWORK,
    "sudo ls": Code.CHANGES_SYSTEM,
    "eval ls": Code.CHANGES_SHELL,
    "source x": Code.CHANGES_SHELL,
    "alias ls=rm; ls": Code.CHANGES_SHELL,
    "f() { rm x; }; f": Code.CHANGES_SHELL,
    "": Code.NOT_UNDERSTOOD,
    "ls 'unclosed": Code.NOT_UNDERSTOOD,
    f"echo {'a' * 20_000}": Code.TOO_LONG,
}


@pytest.mark.parametrize("text", FREE)
def test_what_only_reads_in_the_workspace_is_free(text: str) -> None:
    judged = look(text)
    assert (judged.is_free, judged.reasons) == (True, ())
    assert judged.commands


@pytest.mark.parametrize("text", ASKS)
def test_everything_else_asks_and_says_why(text: str) -> None:
    judged = look(text)
    assert not judged.is_free
    assert ASKS[text] in {reason.code for reason in judged.reasons}
    assert all(reason.words for reason in judged.reasons)


def test_every_command_of_the_tree_is_told() -> None:
    judged = look("cat a | grep b; sh -c 'wc -l c'")
    assert [seen.words[0] for seen in judged.commands] == ["cat", "grep", "sh", "wc"]


def test_reading_over_the_network_is_free_only_where_the_sandbox_has_one() -> None:
    assert not look("gh pr list").is_free
    assert look("gh pr list", Network.OPEN).is_free
    assert not look("gh pr merge 1", Network.OPEN).is_free


joined = st.sampled_from([" ; ", " && ", " || ", " | ", " & ", "\n"])


@given(st.sampled_from(FREE), joined, st.sampled_from(sorted(set(ASKS) - {"", "ls 'unclosed"})))
@settings(max_examples=150, deadline=None)
def test_nothing_makes_a_text_free_that_holds_what_asks(free: str, operator: str, asking: str) -> None:
    for text in (f"{free}{operator}{asking}", f"{asking}{operator}{free}", f"({asking})", f"{{ {asking}; }}"):
        assert not look(text).is_free


@given(st.text(max_size=200))
@settings(max_examples=200, deadline=None)
def test_no_text_whatever_breaks_the_judge(text: str) -> None:
    judged = look(text)
    assert judged.is_free == (not judged.reasons)


@given(st.text("lsrmcat $(){}[]<>|&;'\"`\\\n-./*?~=#!x", max_size=60))
@settings(max_examples=400, deadline=None)
def test_whatever_is_free_names_only_known_programs(text: str) -> None:
    judged = look(text)
    if judged.is_free:
        assert all(seen.words[0] != "rm" for seen in judged.commands if seen.words)
        assert not any(sign in text for sign in ("`rm ", "$(rm "))
