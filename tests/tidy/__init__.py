"""The style's rules as code. Owns: finding what breaks them in a source. Not: which files are looked at (test_tidy)."""
