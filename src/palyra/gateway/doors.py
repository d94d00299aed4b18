"""The doors. Owns: what a gateway is given to let people in by: tokens, log-ins, the access policy. Not: using them."""

from dataclasses import dataclass

from palyra.gateway.logins import Logins
from palyra.ports.clock import Clock
from palyra.ports.policy import AccessPolicy
from palyra.ports.tokens import TokenRegister, Tokens


@dataclass(frozen=True, slots=True)
class Doors:
    tokens: Tokens
    register: TokenRegister
    logins: Logins
    policy: AccessPolicy
    clock: Clock
