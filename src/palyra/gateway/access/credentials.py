"""The doors. Owns: what a gateway is given to let people in by: tokens, log-ins, the access policy. Not: using them."""

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
