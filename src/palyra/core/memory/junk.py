"""What is not worth keeping: texts that a memory fills up with if nobody looks.

Owns: the kinds of junk, and the order in which they are looked for.
Does not own: what happens to junk (judge). Items that a person adds by hand are never looked at here.
"""

import re
from enum import Enum

from palyra.core.memory.text import normalise, words_of

WORDS_MIN = 3  # Fewer words are a reply, not a statement. Languages without blanks have long words instead.
LETTERS_MIN = 12
HEADINGS_MAX = 2  # A statement has no headings. A file that instructs agents has many.


class Junk(Enum):
    INSTRUCTION = "restated_instruction"
    TRANSIENT = "transient_state"
    SMALL_TALK = "small_talk"
    HEARTBEAT = "heartbeat"
    RECALLED = "recalled_text"
    BOOT_FILE = "boot_file"
    NARRATION = "narration"


_RECALLED = re.compile(r"<<<\\*palyra:|\[\\*palyra\]|<\s*/?\\*(recalled_memory|preferences|context_references)", re.I)
_BOOT_FILE = re.compile(
    r"(^|\s|[#/`])(AGENTS|CLAUDE|GEMINI|MEMORY|SOUL|IDENTITY|BOOTSTRAP|HEARTBEAT|TOOLS|USER|SKILL)\.md\b"
)
_HEADING = re.compile(r"^#{1,6} ", re.M)
_HEARTBEAT = re.compile(
    r"\bheartbeat_ok\b|^heartbeat\b|\bheartbeat (check|received|sent|ok|from|at)\b"
    r"|^(ping|pong|still (alive|here|running))\b|\b(no|nothing) (new )?(updates?|changes?)"
    r"( (since|to report)\b.*)?[.!]?$|\bnothing to report\b|\bstatus: (ok|idle|alive)\b",
    re.I,
)
_INSTRUCTION = re.compile(
    r"^(you are|you're) (an?|the) .*\b(assistant|agent|model|ai)\b|\bas an ai\b|\bmy (system prompt|instructions)\b"
    r"|\bsystem prompt\b|^(the )?(assistant|agent) (should|must|will|shall)\b|^i (am to|was (told|asked|instructed) to)\b"
    r"|^i should (be|remain|stay|keep|not|always|never)\b"
    r"|^(the )?user (asked|asks|wants|told|instructed|requested) (me|the (assistant|agent))\b|\bi (have|was given) tools\b",
    re.I,
)
_TRANSIENT = re.compile(
    r"\b(right now|at the moment|currently (running|waiting|working|looking|in progress)|in progress|just now"
    r"|a (moment|minute|second) ago)\b|^(i am|i'm|i will|i'll|let me|we are|we're) (now )?(go(ing)? to|about to|check|run"
    r"|look|read|try|wait|work|start|open|fetch|writ)|\b(command|build|test|tests|process|server|download) (is|are) (still )?"
    r"(running|pending|starting)\b|^waiting for\b|^it is \d{1,2}[:.]\d\d|^the current (directory|folder|working|file)\b"
    r"|^(today is|the (current )?(time|date) is)\b|\bexit (code|status) \d+\b",
    re.I,
)
_SMALL_TALK = re.compile(
    r"^(hi|hello|hey|thanks?( you)?|thank you|thx|ok(ay)?|sure|great|cool|nice|yes|no|yep|nope|bye|goodbye|good (morning|"
    r"night|evening|afternoon)|how are you|you're welcome|no problem|sounds good|got it|lol|haha+|welcome)\b"
    r"(?!.*\b(is|was|has|prefers|likes|lives|works)\b)[\s\w,'’]*[.!?]*$",
    re.I,
)

# What a model did, and how it went, is on the tape.
_NARRATION = re.compile(
    r"^i('ve| have)?( just| now)? (ran|run|executed|finished|completed|checked|read|listed|opened|searched|fetched|called"
    r"|wrote|written|created) (the|this|all|an?) (commands?|tasks?|files?|folder|page|logs?|tests?|script|tool|request"
    r"|report|code|search|document)\b"
    r"|^(the )?(task|command|file|tool|script|call|request|operation|search|run|job) (was|has been|is|returned|ended|gave)?"
    r"\s?(\w+ )?(successfully|completed|finished|succeeded|done|(an? )?(error|result|output))\b"
    r"|^(the )?(user|assistant|agent) (said|greeted|thanked|replied|answered|asked about)\b"
    r"|^(the|this) (conversation|chat|session|discussion) (is|was) about\b"
    r"|^there (were|are|was|is) (\d+|no) (files?|results?|errors?|matches|lines)\b",
    re.I,
)


def find_junk(content: str) -> Junk | None:
    """Returns what kind of junk the text is, or None if it may be worth keeping."""
    text = normalise(content)
    if _RECALLED.search(content):
        return Junk.RECALLED
    if _BOOT_FILE.search(content) or len(_HEADING.findall(content)) > HEADINGS_MAX:
        return Junk.BOOT_FILE
    if _HEARTBEAT.search(text):
        return Junk.HEARTBEAT
    words = words_of(content)
    if (len(words) <= 2 * WORDS_MIN and _SMALL_TALK.match(text)) or _is_short(words):
        return Junk.SMALL_TALK
    if _INSTRUCTION.search(text):
        return Junk.INSTRUCTION
    if _NARRATION.search(text):
        return Junk.NARRATION
    return Junk.TRANSIENT if _TRANSIENT.search(text) else None


def _is_short(words: tuple[str, ...]) -> bool:
    return len(words) < WORDS_MIN and sum(map(len, words)) < LETTERS_MIN
