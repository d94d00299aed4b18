"""What `palyra` shows and reads on a terminal: prompts, colours, tables, approval cards and live runs.

Does not own: commands, calls of the daemon (client).
"""
