"""One session at a time: the loop that commits, the gate that judges, the runner of effects. Not: requests (engine.api)."""
