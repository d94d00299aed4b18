"""The stores that callers are checked against: tokens, console sessions, the access policy.

Owns: one record that hands them to the gateway together.
Does not own: checking (authentication), deciding (roles, viewer), files (adapters.tokens).
"""

from dataclasses import dataclass

from palyra.gateway.access.console_sessions import ConsoleSessions
from palyra.ports.clock import Clock
from palyra.ports.policy import AccessPolicy
from palyra.ports.tokens import TokenRegister, Tokens


@dataclass(frozen=True, slots=True)
class Credentials:
    tokens: Tokens
    register: TokenRegister
    logins: ConsoleSessions
    policy: AccessPolicy
    clock: Clock
