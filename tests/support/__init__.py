"""What several test packages share: fixed keys, clocks, and drafts of events."""
