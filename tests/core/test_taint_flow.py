"""L8 over whole stories: what an attacker wrote reaches no session unseen, through answers, files, branches and restarts."""

from collections.abc import Callable
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from palyra.core.events import Data, Draft, Event
from palyra.core.events.model import Finish, ModelOutput
from palyra.core.events.session import Parent, SessionBranched, SessionReset, SourceDistrusted, SourceTrusted
from palyra.core.events.tool import FileBytes, Outcome, ToolFinished, ToolJudged, Verdict
from palyra.core.ids import CallId, EffectId, Principal, SessionId, StreamId
from palyra.core.projections.provenance import full_path, project_files
from palyra.core.taint import Taint, decode_taint, encode_taint, fold_taint, label, labels, trust_of_taint
from palyra.core.trust import Trust, is_tainting, lowest

ALICE = Principal("user:alice")
HOSTS = ("a", "b", "c")
PATHS = ("x", "y")
SESSIONS_MAX = 4


@dataclass
class Talk:
    """One session as the daemon keeps it, and what really influenced it, by the source it came through."""

    stream: SessionId
    tape: list[Draft] = field(default_factory=list)
    taint: Taint = ()
    trust: Trust = Trust.OPERATOR
    influences: dict[str, frozenset[str]] = field(default_factory=dict)
    vouched: set[str] = field(default_factory=set)

    def add(self, data: Data, trust: Trust = Trust.SYSTEM) -> Event:
        said = Draft(data=data, actor=ALICE, trust=trust, at_ms=1)
        self.tape.append(said)
        self.taint = fold_taint(self.taint, said, len(self.tape))
        return Event(
            seq=len(self.tape),
            position=1,
            stream=self.stream,
            run_id=None,
            type=data.TYPE,
            at_ms=1,
            actor=ALICE,
            trust=trust,
            data=data,
            hash="",
            salt=None,
            digest="",
        )

    def influence(self) -> frozenset[str]:
        unvouched = [origins for source, origins in self.influences.items() if source not in self.vouched]
        return frozenset().union(*unvouched)


class World:
    """Sessions that share one workspace. Nothing here looks at labels to know who influenced whom."""

    def __init__(self) -> None:
        self.talks = [Talk(SessionId(StreamId("s0")))]
        self.files: dict[str, tuple[FileBytes, frozenset[str]]] = {}
        self.tainted: set[tuple[str, str]] = set()
        self.writes_count = 0

    def fetch(self, talk: Talk, choice: int) -> None:
        host = HOSTS[choice % len(HOSTS)]
        source = label("http", host)
        talk.add(_finished(source=source), Trust.EXTERNAL)
        talk.influences[source] = talk.influences.get(source, frozenset()) | {host}

    def look(self, talk: Talk, choice: int) -> None:
        talk.add(_finished(), Trust.LOCAL)

    def answer(self, talk: Talk, choice: int) -> None:
        """A summary: all that is in the context, said again."""
        trust = lowest((Trust.OPERATOR, trust_of_taint(talk.taint)))
        said = ModelOutput(turn=1, text="in short", tool_calls=(), finish=Finish.STOP, usage=None)
        assert is_tainting(trust) or not talk.influence()
        talk.add(said, trust)

    def write(self, talk: Talk, choice: int) -> None:
        """Sometimes the outcome is lost to a crash; the bytes are there all the same."""
        self.writes_count += 1
        file = FileBytes(root="/w", path=PATHS[choice % len(PATHS)], sha256=f"{self.writes_count:064x}")
        taint = labels(talk.taint)
        verdict = ToolJudged(
            call_id=CallId("c"), verdict=Verdict.ALLOW, rule="r", reason="", taint=taint, writes=(file,)
        )
        events = [talk.add(verdict)]
        if choice % 3:
            events.append(talk.add(_finished(written=(replace(file, taint=taint),))))
        self.tainted |= {(row.path, row.sha256) for event in events for row in project_files(event, ())}
        self.files[file.path] = (file, talk.influence())

    def read(self, talk: Talk, choice: int) -> None:
        found = self.files.get(PATHS[choice % len(PATHS)])
        if found is None:
            return
        file, origins = found
        if (full_path(file), file.sha256) not in self.tainted:
            assert not origins
            talk.add(_finished(), Trust.LOCAL)
            return
        source = label("file", file.path)
        talk.add(_finished(source=source), Trust.EXTERNAL)
        talk.influences[source] = talk.influences.get(source, frozenset()) | origins

    def branch(self, talk: Talk, choice: int) -> None:
        if len(self.talks) >= SESSIONS_MAX:
            return
        child = Talk(SessionId(StreamId(f"s{len(self.talks)}")))
        parent = Parent(session_id=talk.stream, seq=len(talk.tape), hash="")
        child.add(SessionBranched(owner=ALICE, agent="main", parent=parent, taint=talk.taint))
        child.influences, child.vouched = dict(talk.influences), set(talk.vouched)
        self.talks.append(child)

    def reset(self, talk: Talk, choice: int) -> None:
        talk.add(SessionReset())
        talk.influences, talk.vouched = {}, set()

    def trust(self, talk: Talk, choice: int) -> None:
        if talk.taint:
            source = talk.taint[choice % len(talk.taint)].source
            talk.add(SourceTrusted(source=source), Trust.OPERATOR)
            talk.vouched.add(source)

    def distrust(self, talk: Talk, choice: int) -> None:
        if talk.taint:
            source = talk.taint[choice % len(talk.taint)].source
            talk.add(SourceDistrusted(source=source), Trust.OPERATOR)
            talk.vouched.discard(source)

    def restart(self, talk: Talk, choice: int) -> None:
        """What is kept is the row; folding the tape again gives the same."""
        again: Taint = ()
        for seq, said in enumerate(talk.tape, start=1):
            again = fold_taint(again, said, seq)
        assert again == talk.taint
        talk.taint = decode_taint(encode_taint(talk.taint))


Step = Callable[[World, Talk, int], None]
STEPS: tuple[Step, ...] = (
    World.fetch,
    World.look,
    World.answer,
    World.write,
    World.read,
    World.branch,
    World.reset,
    World.trust,
    World.distrust,
    World.restart,
)
LIFTING: tuple[Step, ...] = (World.reset, World.trust)


def _finished(source: str | None = None, written: tuple[FileBytes, ...] = ()) -> ToolFinished:
    return ToolFinished(
        call_id=CallId("c"),
        effect_id=EffectId("e"),
        outcome=Outcome.OK,
        error=None,
        attestation=None,
        source=source,
        written=written,
    )


@settings(max_examples=200)
@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 3), st.integers(0, 11)), max_size=40))
def test_no_influence_from_outside_goes_unseen_and_none_fades_by_itself(story: list[tuple[Step, int, int]]) -> None:
    world = World()
    for step, number, choice in story:
        talk = world.talks[number % len(world.talks)]
        before = {each.stream: set(labels(each.taint)) for each in world.talks}
        step(world, talk, choice)
        for each in world.talks:
            assert labels(each.taint) or not each.influence()
            is_lifted = each is talk and step in LIFTING
            assert is_lifted or before.get(each.stream, set()) <= set(labels(each.taint))
