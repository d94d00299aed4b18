"""`palyra secrets`: reads secret values without showing them, and lists and removes secrets.

Does not own: the vault (adapters.vault).
Invariant: a value is never read from the command line, which every process on the machine can see, and never printed.
"""

import os
from pathlib import Path
from typing import Annotated

import typer

from palyra.cli.options import CommandGroup, expanded, home_of, is_json
from palyra.cli.output import print_json, print_line, print_result
from palyra.core.errors import Invalid

app = CommandGroup(no_args_is_help=True)

VALUE_BYTES_READ_MAX = 64 * 1024 + 2  # The largest value and its line end. Longer input is refused, not cut.
# Extra words are accepted here, so that the refusal does not repeat them: one may be a secret.
_WORDS_ARE_TAKEN = {"allow_extra_args": True, "ignore_unknown_options": True}

NameArgument = Annotated[
    str, typer.Argument(help="The name that follows vault: in the configuration.", show_default=False)
]
FromEnvOption = Annotated[
    str | None, typer.Option("--from-env", metavar="NAME", help="Take it from this environment variable.")
]
FromFileOption = Annotated[
    Path | None, typer.Option("--from-file", metavar="PATH", help="Take it from this file, without its last line end.")
]


@app.callback()
def group() -> None:
    """Secrets in the encrypted vault of this home.

    Examples:

      palyra secrets set openai
    """


@app.command("set", context_settings=_WORDS_ARE_TAKEN, url=False)
def set_secret(
    context: typer.Context, name: NameArgument, from_env: FromEnvOption = None, from_file: FromFileOption = None
) -> None:
    """Store a secret under a name, or replace its value. A running daemon uses it from its next request on.

    On a terminal you type the value without echo; otherwise it is read from standard input. It cannot be an argument.

    Examples:

      palyra secrets set openai

      printf %s "$KEY" | palyra secrets set openai

      palyra secrets set openai --from-env OPENAI_API_KEY
    """
    from palyra.app import now_ms
    from palyra.app.secrets import checked_name, open_vault

    _refuse_words(context)
    checked = checked_name(name)
    value = _take(f"Value of {checked}: ", from_env, from_file)
    had_one = open_vault(home_of(context)).set(checked, value, now_ms())
    if is_json(context):
        print_json({"ok": True, "name": checked, "replaced": had_one})
    else:
        print_line(f"{checked} {'has a new value' if had_one else 'is kept'}; refer to it as vault:{checked}")


@app.command("list", url=False)
def list_secrets(context: typer.Context) -> None:
    """List the names of secrets and when each was set. Values are never shown.

    Examples:

      palyra secrets list --json
    """
    from palyra.app.secrets import open_vault
    from palyra.cli.terminal.style import date_time
    from palyra.cli.terminal.tables import print_rows

    vault = open_vault(home_of(context))
    rows = vault.rows()
    if is_json(context):
        kind = vault.lock_kind()
        print_json({"items": rows, "next_after": None, "lock": kind})
    else:
        print_rows(
            ("name", "set"),
            [(row.name, date_time(row.set_at_ms)) for row in rows],
            "the vault holds no secrets; palyra secrets set NAME adds one",
        )


@app.command("rm", url=False)
def remove_secret(context: typer.Context, name: NameArgument) -> None:
    """Remove a secret for good.

    Examples:

      palyra secrets rm openai
    """
    from palyra.app.secrets import checked_name, open_vault

    checked = checked_name(name)
    open_vault(home_of(context)).remove(checked)
    print_result(context, {"ok": True, "name": checked}, f"{checked} is removed")


@app.command("passphrase", context_settings=_WORDS_ARE_TAKEN, url=False)
def set_passphrase(
    context: typer.Context,
    remove: Annotated[bool, typer.Option("--remove", help="Go back to the key file vault.key.")] = False,
    from_env: FromEnvOption = None,
    from_file: FromFileOption = None,
) -> None:
    """Lock the vault with a passphrase instead of the key file, or change the passphrase.

    The present passphrase comes from PALYRA_VAULT_PASSPHRASE, or from the file that PALYRA_VAULT_PASSPHRASE_FILE names.
    Otherwise you are asked for it. You type the new one twice on a terminal; otherwise it is read from standard input.
    The daemon needs the passphrase when it starts.

    Examples:

      palyra secrets passphrase

      palyra secrets passphrase --remove
    """
    from palyra.app.secrets import open_vault

    _refuse_words(context)
    if remove and (from_env is not None or from_file is not None):
        raise typer.BadParameter("--remove takes no new passphrase; leave out --from-env and --from-file")
    vault = open_vault(home_of(context))
    vault.rows()  # This asks for the present passphrase before the new one.
    if remove:
        vault.lock_with_file()
        said = "the vault opens with vault.key again"
    else:
        vault.lock_with_passphrase(_take_new(from_env, from_file))
        said = "the vault opens with the new passphrase; give it to the daemon before its next start"
    print_result(context, {"ok": True, "lock": vault.lock_kind()}, said)


def _refuse_words(context: typer.Context) -> None:
    if context.args:
        raise typer.BadParameter(
            "a secret cannot be an argument, because others can see the command line. Leave it out and type it when asked, "
            "or use standard input, --from-env or --from-file. If one of the arguments was a secret, replace it where it "
            "was issued"
        )


def _take(question: str, from_env: str | None, from_file: Path | None) -> str:
    from palyra.app.passphrases import ask_hidden, is_terminal

    if from_env is not None and from_file is not None:
        raise typer.BadParameter("use only one of --from-env and --from-file")
    if from_env is not None:
        return _take_variable(from_env)
    if from_file is not None:
        return _take_file(expanded(from_file))
    if is_terminal():
        return ask_hidden(question)
    return _as_text(typer.get_binary_stream("stdin").read(VALUE_BYTES_READ_MAX + 1), "standard input")


def _take_new(from_env: str | None, from_file: Path | None) -> str:
    from palyra.app.passphrases import ask_hidden, is_terminal

    passphrase = _take("New passphrase: ", from_env, from_file)
    if from_env is None and from_file is None and is_terminal() and ask_hidden("Once more: ") != passphrase:
        raise Invalid("vault_passphrase_unequal", "the two entries differ; nothing was changed")
    return passphrase


def _take_variable(name: str) -> str:
    value = os.environ.get(name)
    if not value:
        raise Invalid("variable_missing", "the variable that --from-env names is not set or empty; nothing was changed")
    return value


def _take_file(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return _as_text(file.read(VALUE_BYTES_READ_MAX + 1), str(path))
    except OSError as cause:
        raise Invalid("file_unreadable", f"{path} cannot be read: {cause.strerror}; nothing was changed") from cause


def _as_text(data: bytes, source: str) -> str:
    """Returns the text without its last line end, which a program or an editor added."""
    if len(data) > VALUE_BYTES_READ_MAX:
        message = f"the value from {source} is larger than {VALUE_BYTES_READ_MAX - 2} bytes; nothing was changed"
        raise Invalid("secret_too_large", message)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        message = f"the value from {source} is not text in UTF-8; encode it, for example as base64"
        raise Invalid("secret_not_text", message) from None  # The cause would hold the value.
    return text.removesuffix("\n").removesuffix("\r") if text.endswith("\n") else text
