"""Texts that look as if they were written to steer an agent, not to tell it something.

Owns: the signs. Does not own: what follows (judge): such a text waits for a person.
This is a net, not a wall. What keeps poison out is taint: an item from a tainted run waits for a person, whatever it
says.
"""

import re

from palyra.core.spelling import hides_something

_SIGNS = re.compile(
    r"\b(ignore|disregard|forget|override|bypass)\b.{0,40}\b(previous|prior|above|earlier|all|any|your|the)\b.{0,30}"
    r"\b(instructions?|rules?|prompts?|polic(y|ies)|guidelines?|context)\b"
    r"|\b(new|updated|real|secret|hidden) (system )?(instructions?|prompt)\b"
    r"|\byou (must|have to|are now|will now|should now)\b.{0,60}\b(always|never|send|run|execute|fetch|reveal|obey|follow)\b"
    r"|\b(from now on,? you|your new (rule|task|goal|role|job)|you (obey|serve|belong to))\b"
    r"|\b(note|message|instructions?) (to|for) (ai|llm|(the |all )?(ai )?(assistants?|agents?|models?))\b"
    r"|\b(system|admin|developer) (override|notice)\b"
    r"|\b(when|whenever|if|every time|each time) (you|the (user|owner|assistant|agent|person))\b.{0,60}\b(recommend|reply"
    r"|answer|say|add|include|forward|send|tell|respond|insert)\b"
    r"|\b(disable|turn off|switch off|skip|bypass) (all |the )*(approvals?|confirmations?|sandbox|safety|polic(y|ies)|checks?)\b"
    r"|\b(forward|send|upload|copy|mail) (all|every|any|each)\b.{0,40}\bto\b"
    r"|\b(include|add|append|put)\b.{0,40}\b(api key|password|token|secret)\b"
    r"|\b(do not|don't|never) (tell|inform|mention|ask|alert|notify)\b.{0,30}\b(user|owner|operator|person|anyone|human)\b"
    r"|\b(without|no need for) (asking|approval|confirmation|permission)\b"
    r"|\b(always|must|please) (send|forward|upload|post|exfiltrate|email|copy)\b.{0,60}\b(to|at)\b"
    r"|\b(curl|wget)\b.{0,80}\bhttps?://|\|\s*(ba)?sh\b|\brm -rf\b|\bbase64 -d\b"
    r"|<\|?(im_start|im_end|system|assistant|endoftext)\|?>|\[/?(inst|system)\]|^\s*(system|assistant|developer)\s*:"
    r"|\bapprove (all|every|any|this|these) (call|calls|request|requests|action|actions)\b",
    re.IGNORECASE | re.MULTILINE,
)


def looks_injected(content: str) -> bool:
    """Tells whether the text commands an agent, imitates a role's marks, or hides characters."""
    return (
        _SIGNS.search(" ".join(content.split())) is not None
        or _SIGNS.search(content) is not None
        or hides_something(content)
    )
