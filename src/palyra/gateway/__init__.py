"""HTTP and SSE over the engine: who asks, what is asked, and the answer's form. Not: any rule of a run (core, engine)."""
