"""The fault campaign on the journal: a simulated disk, real deaths, and the audit of what is left."""
