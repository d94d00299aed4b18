"""What several test packages share: fixed keys, clocks, drafts of events, stand-ins and waits."""
