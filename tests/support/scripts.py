"""A scripted provider that plays one script for every question."""

from palyra.adapters.providers.prepared_turns import Turn
from palyra.adapters.providers.scripted import Script, ScriptedProvider


def play_turns(*turns: Turn) -> ScriptedProvider:
    return ScriptedProvider([Script(turns=turns)])
