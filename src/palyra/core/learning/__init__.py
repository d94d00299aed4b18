"""The rules of learning: candidates, the thresholds they are judged by, and their states.

Does not own: finding candidates by a model, applying them (engine.learning).
"""
