"""Sensitive files: which files tell an agent what to do, are run automatically, or hold keys and passwords.

Does not own: what may be done with them (policy).
"""

import re
import unicodedata

from palyra.core.spelling import is_seen

# Compared without case, because some file systems ignore it.
INSTRUCTION_FILES = frozenset(
    """
    agents.md agents.override.md claude.md claude.local.md copilot-instructions.md gemini.md memory.md palyra.md skill.md
    """.split()
)
INSTRUCTION_FOLDERS = frozenset({"hooks"})
# Git runs the files of these folders outside every sandbox. Writing there is executing later, so it asks likewise.
GIT_RUN_FOLDERS = frozenset({".git", ".githooks", ".husky"})
# Git takes any folder that holds `HEAD`, `objects` and `refs` as a repository, and its `config` names programs. The
# other three are common names, which mean nothing to git without a `HEAD`. A repository's settings often include a
# `.gitconfig`.
GIT_FILES = frozenset({"head", "packed-refs", ".gitconfig"})
GIT_HOOKS = frozenset(
    """
    applypatch-msg commit-msg fsmonitor-watchman post-applypatch post-checkout post-commit post-index-change post-merge
    post-receive post-rewrite post-update pre-applypatch pre-auto-gc pre-commit pre-merge-commit pre-push pre-rebase pre-receive
    prepare-commit-msg proc-receive push-to-checkout reference-transaction sendemail-validate update
    """.split()
)
# References never show these, whatever a policy says. Their content is a key, or opens something.
SECRET_FOLDERS = frozenset(
    ".git .ssh .aws .azure .gcloud .gnupg .kube .password-store .palyra .secrets keyrings".split()
)
SECRET_FILES = frozenset(
    """
    .netrc _netrc .npmrc .pypirc .pgpass .my.cnf .git-credentials .htpasswd .vault-token .dockercfg .s3cfg .boto
    credentials credentials.json secrets.json secrets.yaml secrets.yml secrets.toml vault admin.token signing.key vault.key
    client_secret.json service-account.json master.key shadow
    """.split()
)
SECRET_SUFFIXES = (
    ".pem", ".key", ".p12", ".pfx", ".pkcs12", ".jks", ".keystore", ".ppk", ".kdbx", ".kdb", ".env", ".gpg", ".pgp",
    ".tfstate", ".ovpn", ".agekey",
)  # fmt: skip
_KEY_NAME = re.compile(r"id_(?:rsa|dsa|ecdsa|ed25519|xmss)(?:_sk)?(?!.*\.pub$).*|.*_(?:rsa|dsa|ecdsa|ed25519)")


def is_instruction(path: str) -> bool:
    """Tells whether the file has such a name, lies below a folder of hooks, is a dot-file or is below a dot-folder."""
    parts = _parts(path)
    is_named_so = bool(parts) and parts[-1] in INSTRUCTION_FILES
    return is_named_so or any(part in INSTRUCTION_FOLDERS or part.startswith(".") for part in parts)


def is_git_run(path: str) -> bool:
    """Recognises repositories without a working tree by a name that ends in `.git`, or by the files that make one."""
    parts = _parts(path)
    is_of_bare = bool(parts) and (parts[-1] in GIT_FILES or (parts[-2:-1] == ["hooks"] and parts[-1] in GIT_HOOKS))
    return is_of_bare or any(part in GIT_RUN_FOLDERS or part.endswith(".git") for part in parts)


def is_sensitive(path: str) -> bool:
    return is_instruction(path) or is_git_run(path)


def is_secret(path: str) -> bool:
    """Tells whether the file holds keys or passwords by its name, or lies in a folder of such files.

    Characters that show nothing are ignored, because some file systems ignore them too.
    """
    parts = [_plain(part) for part in _parts(path)]
    if not parts:
        return False
    name = parts[-1]
    is_key = name.endswith(SECRET_SUFFIXES) or _KEY_NAME.fullmatch(name) is not None
    is_named_so = name in SECRET_FILES or any(part.startswith(".env") for part in parts)
    return is_key or is_named_so or any(part in SECRET_FOLDERS for part in parts)


def _plain(part: str) -> str:
    seen = "".join(filter(is_seen, unicodedata.normalize("NFKC", part)))
    return seen.rstrip(". ").casefold()


def _parts(path: str) -> list[str]:
    return [part for part in path.casefold().split("/") if part not in ("", ".")]
