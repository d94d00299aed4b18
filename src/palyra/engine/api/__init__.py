"""Services of the engine: what a gateway may ask for, each request for one principal (L11). Not: driving runs (session)."""
