"""Every rule of a run. A run is a fold over its tape. Does not own: performing anything (engine)."""
