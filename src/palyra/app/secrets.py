"""Resolves secrets: what `env:NAME` and `vault:NAME` stand for, and which of them a configuration has.

Does not own: the vault (adapters.vault), what a secret is used for.
A value is looked up at every use, so that one changed by `palyra secrets set` is used without a restart.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import assert_never

from palyra.adapters.keys.secret_file import load, load_or_create
from palyra.adapters.vault.contents import NAME_BYTES_MAX
from palyra.adapters.vault.header import Costs, LockKind
from palyra.adapters.vault.keyring import COSTS, Keyring, Origins
from palyra.adapters.vault.vault import SecretRow, Vault
from palyra.app import Home
from palyra.app.passphrases import AskPerson, Passphrases, person_at_terminal
from palyra.config import Config, SecretRef, SecretSource, Section, parse_secret
from palyra.core.errors import Invalid, Unavailable
from palyra.core.redaction import KnownSecrets, Redactor

AskSecret = Callable[[], str | None]


class SecretSources:
    """Looks secrets up for one process."""

    def __init__(
        self,
        home: Home,
        environ: Mapping[str, str],
        ask_person: AskPerson | None = None,
        known: KnownSecrets | None = None,
    ) -> None:
        self._known = known or KnownSecrets()
        self._environ = environ
        self._passphrases = Passphrases(environ, ask_person)
        self._vault = _vault(home, self._passphrases, COSTS)

    def source(self, reference: SecretRef | None) -> AskSecret:
        """Returns a function that is called at every use of the secret. It returns None if no secret is wanted."""
        return lambda: None if reference is None else self.look_up(reference)

    def fill_in(self, variables: Mapping[str, str]) -> dict[str, str]:
        """Returns the variables for a program: plain ones as they are, references resolved."""
        return {
            name: self.look_up(parse_secret(text)) if _is_reference(text) else text for name, text in variables.items()
        }

    def look_up(self, reference: SecretRef) -> str:
        match reference.source:
            case SecretSource.ENVIRONMENT:
                value, remedy = self._environ.get(reference.name), "is not set in the daemon's environment"
            case SecretSource.VAULT:
                value, remedy = (
                    self._vault.get(reference.name),
                    f"is not there; run: palyra secrets set {reference.name}",
                )
            case _:
                assert_never(reference.source)
        if not value:
            raise Unavailable("secret_missing", f"{reference} {remedy}")
        # The value is known before it is used, so that it is recognised wherever it turns up.
        self._known.add(value)
        return value

    def open(self) -> int | None:
        """Returns how many secrets the vault holds, None if there is no vault. Only here may a person be asked."""
        try:
            return len(self._vault.rows()) if self._vault.lock_kind() is not None else None
        finally:
            self._passphrases.leave_person_alone()

    def known_values(self, config: Config) -> frozenset[str]:
        """Returns everything that must not turn up anywhere.

        That is the whole vault, and what the configuration takes from variables.
        """
        return self._vault.values() | self.variables(config)

    def variables(self, config: Config) -> frozenset[str]:
        """Returns what the configuration takes from variables."""
        names = [each.name for each in references_of(config) if each.source is SecretSource.ENVIRONMENT]
        return frozenset(value for name in names if (value := self._environ.get(name)))

    def unresolved(self, config: Config) -> tuple[SecretRef, ...]:
        """Returns references of the configuration that lead nowhere; raises if the vault cannot be opened."""
        return tuple(each for each in references_of(config) if not self._has(each))

    def _has(self, reference: SecretRef) -> bool:
        if reference.source is SecretSource.ENVIRONMENT:
            return bool(self._environ.get(reference.name))
        return self._vault.get(reference.name) is not None


def open_sources(home: Home, config: Config, known: KnownSecrets | None = None) -> SecretSources:
    """Opens the sources for a daemon.

    A daemon whose configuration needs the vault does not start if it cannot open the vault.
    """
    known = known or KnownSecrets()
    sources = SecretSources(home, os.environ, person_at_terminal(), known)
    known.add(*sources.variables(config))
    if any(each.source is SecretSource.VAULT for each in references_of(config)):
        sources.open()
        known.add(*sources.known_values(config))
    return sources


def open_vault(home: Home, costs: Costs = COSTS) -> Vault:
    """Opens the vault for the commands that change it."""
    return _vault(home, Passphrases(os.environ, person_at_terminal()), costs)


def references_of(config: Config) -> tuple[SecretRef, ...]:
    """Returns every reference to a secret, once each, in the order of the file."""
    found = [each for section in _sections(config) for each in _references_in(section)]
    hint = config.provider_hint.api_key if config.provider_hint is not None else None
    return tuple(dict.fromkeys([*found, *([hint] if hint is not None else [])]))


def checked_name(text: str) -> str:
    """Checks that a secret's name has a form that a configuration can refer to, and returns it."""
    if Redactor(b"").text(text).secrets:
        raise Invalid(
            "secret_name_invalid",
            "what stands in the place of the name looks like a secret itself; give a name, and the value when asked for it; "
            "replace this one where it was issued, since your shell and the list of processes have seen it",
        )
    try:
        return parse_secret(f"{SecretSource.VAULT.value}:{text}").name
    except Invalid as cause:
        message = (
            f"a secret's name has 1 to {NAME_BYTES_MAX} letters, digits, _ . and -, and begins with neither . nor -"
        )
        raise Invalid("secret_name_invalid", message) from cause


def _vault(home: Home, passphrases: Passphrases, costs: Costs) -> Vault:
    origins = Origins(
        load_key=lambda: _key(load, home.vault_key),
        make_key=lambda: _key(load_or_create, home.vault_key),
        ask_passphrase=passphrases.ask,
    )
    return Vault(home.vault, Keyring(origins, costs))


def _key(read: Callable[[Path], bytes], path: Path) -> bytes:
    try:
        return read(path)
    except FileNotFoundError:
        raise
    except OSError as cause:
        message = f"{path} cannot be read or made ({cause.strerror}); give it to the user who runs palyra"
        raise Unavailable("key_unreadable", message, is_retryable=False) from cause


def _sections(config: Config) -> Iterator[Section]:
    for name in config.__struct_fields__:
        value = getattr(config, name)
        for each in value if isinstance(value, tuple) else (value,):
            if isinstance(each, Section):
                yield each


def _references_in(section: Section) -> Iterator[SecretRef]:
    for name in section.__struct_fields__:
        value = getattr(section, name)
        if isinstance(value, SecretRef):
            yield value
        elif name == "env":  # Some variables for a program are plain, and some are references.
            yield from (parse_secret(text) for text in value.values() if _is_reference(text))


def _is_reference(text: str) -> bool:
    try:
        parse_secret(text)
    except Invalid:
        return False
    return True


__all__ = ["LockKind", "SecretRow", "SecretSources", "checked_name", "open_sources", "open_vault", "references_of"]
