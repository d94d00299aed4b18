"""Access for every protocol: who asks, what they may do, and whose permissions apply.

Owns: authentication, roles, resources and viewers, all asked with credentials and ids.
Does not own: requests of any protocol (gateway.http), stored tokens (adapters), policies (adapters.policy).
"""
