"""Decides whether the name of a variable, field, header or flag says that its value is a secret.

Does not own: judging the value (values).
A name is split at punctuation and case (`dbPassword`, `DB_PASSWORD`, `db-password`), and its last word decides. The
word before it may confirm (`api key`) or cancel (`public key`, `next page token`) that. Words added for order or
environment (`token2`, `password_prod`) are skipped.
"""

import enum
import re
from functools import lru_cache
from typing import NamedTuple

NAMES_KEPT = 1024  # Texts repeat their names; a name costs more to take apart than to look up.


class Belief(enum.IntEnum):
    """How far a name alone is believed. The less it is, the more the value itself must look like a secret."""

    HINT = 1
    TOKEN = 2
    PASSWORD = 3


class Name(NamedTuple):
    kind: str
    belief: Belief


_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_a-zA-Z]+")

_SKIPPED_TAILS = frozenset(
    "value val string str plain plaintext raw prod production dev development test testing staging stage live sandbox old new"
    " current default backup b64 base64 hex override primary secondary main enc encrypted decrypted".split()
)
_PASSWORD_WORDS = frozenset(
    "password passwd passwort passphrase passcode pass pwd pw psw pword passw userpass userpwd dbpass dbpwd kennwort"
    " contrasena contraseña senha parola пароль".split()
)
_PASSWORD_ENDS = ("password", "passwd", "passphrase", "passcode", "passwort", "pwd")
_SECRET_WORDS = frozenset(("secret", "secrets", "mnemonic"))
_TOKEN_WORDS = frozenset("token jwt pat bearer tkn authtoken otp".split())
_KEY_ENDS = (
    "apikey accesskey secretkey privatekey authkey accountkey masterkey licensekey signingkey encryptionkey sharedkey"
    " deploykey servicekey sshkey appkey subscriptionkey"
).split()
_KEY_LIFTS = frozenset(
    "api access secret private signing encryption encrypt decryption auth authentication master account service app"
    " application deploy license licence ssh gpg pgp hmac aes rsa dsa ecdsa ed25519 webhook subscription storage admin role"
    " client consumer server write read insert ingest ingestion session user jwt shared root integration tenant personal"
    " management provisioning instrumentation function host security bot sandbox merchant project team org organization"
    " developer seed signature fernet django flask wep wpa psk preshared cloud global rest art".split()
)
_KEY_CANCELS = frozenset(
    "public pub primary foreign partition sort cache routing object idempotency row dict dictionary registry map index group"
    " bucket hash lookup translation message i18n config publishable unique composite candidate natural surrogate sequence"
    " sorting order range field column json yaml xml arrow escape enter shift control ctrl alt tab hot short shortcut space"
    " page up down left right home end delete backspace keyboard press pressed".split()
)
_TOKEN_CANCELS = frozenset(
    "next page continuation cursor sync csrf xsrf authenticity cancellation cancel public stop eos bos pad unk mask special"
    " sep cls max min start end first last previous prev lexer syntax design num total per input output prompt completion"
    " parse parser".split()
)
_AUTHORIZATION_WORDS = frozenset(("authorization", "authorisation"))
_HINT_WORDS = frozenset(
    "key auth login credential credentials creds cred cookie cookies sig signature sid keyid passkey access".split()
)


@lru_cache(maxsize=NAMES_KEPT)
def classify_name(name: str, word_before: str = "") -> Name | None:
    """Returns what the name says of its value, or None.

    `word_before` is the word written before the name, as in "client secret".
    """
    words = [word.lower() for word in _WORD.findall(name)]
    if words[:1] == ["bundle"] and "__" in name:
        return Name("password", Belief.PASSWORD)  # Bundler keeps `user:password` of a gem host in BUNDLE_<HOST>.
    if word_before:
        words.insert(0, word_before.lower())
    while len(words) > 1 and (words[-1] in _SKIPPED_TAILS or words[-1].isdigit()):
        words.pop()
    if not words:
        return None
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    if last in _PASSWORD_WORDS or last.endswith(_PASSWORD_ENDS):
        return Name("password", Belief.PASSWORD)
    if last in _SECRET_WORDS or last.endswith("secret"):
        return None if before in _TOKEN_CANCELS else Name("secret", Belief.TOKEN)
    if last in _AUTHORIZATION_WORDS:
        return Name("authorization", Belief.TOKEN)
    if last in _TOKEN_WORDS or last.endswith("token"):
        return None if before in _TOKEN_CANCELS else Name("token", Belief.TOKEN)
    return _classify_key(last, before)


def _classify_key(last: str, before: str) -> Name | None:
    if last == "key" and before in _KEY_CANCELS:
        return None
    if (last == "key" and before in _KEY_LIFTS) or last.endswith(tuple(_KEY_ENDS)):
        return Name("api_key", Belief.TOKEN)
    if (last == "id" and before in ("access", "key", "accesskey")) or last in ("accessid", "accesskeyid"):
        return Name("api_key", Belief.HINT)
    if last in _HINT_WORDS or last.endswith("key"):
        return Name("generic", Belief.HINT)
    return None
