"""The services of the engine: what a gateway may ask for, each request for one principal (L11).

Does not own: driving runs (engine.session).
"""
