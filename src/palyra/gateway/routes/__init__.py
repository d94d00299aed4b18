"""Routes of the HTTP API, one module for each noun. Not: what is done with a request (engine.api)."""
