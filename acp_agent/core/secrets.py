"""What packages share about secrets: names of files that hold them, their placeholders, and questions asking for one.

`output/redaction` finds the secrets. ACP and MCP forbid forms ("Elicitation") that ask for passwords and keys.
The checks for them look at names and sentences, so they stop only servers and models that ask openly.
"""

import posixpath
import re
import unicodedata
from collections import Counter
from collections.abc import Callable
from enum import IntEnum
from fnmatch import fnmatchcase
from functools import cache
from itertools import pairwise
from typing import TypeAlias

MAX_PATTERN = 64
"""The most characters of a name with wildcards. No secret file has a longer name."""

_SEALED_FOLDERS = frozenset((".ssh", ".gnupg"))
_PUBLIC = ("config", "known_hosts", "known_hosts.old", "pubring.kbx")
_PASSWORDS = frozenset(("shadow", "shadow-", "gshadow", "gshadow-", "sudoers", "sudoers.d", "master.passwd"))
_PROCESS = frozenset(("environ", "mem"))

_GUARDED_FOLDERS = frozenset((".aws", ".azure", ".kube", ".ssh", ".gnupg", ".config/gcloud", ".config/gh"))
_KEYS = ("id_rsa", "id_dsa", "id_ecdsa", "id_ecdsa_sk", "id_ed25519", "id_ed25519_sk")
_LOGINS = (
    *(".netrc", "_netrc", ".pgpass", ".my.cnf", ".npmrc", ".pypirc", ".git-credentials", ".htpasswd"),
    *(".dockercfg", ".s3cfg", ".boto", ".vault-token"),
)
_SECRETS = (
    "credentials", "credentials.json", "credentials.toml", "client_secret.json", "secrets.yml", "secrets.yaml",
    "secrets.json",
)  # fmt: skip
_GUARDED = frozenset((*_KEYS, *_LOGINS, *_SECRETS, ".env", ".envrc", ".docker/config.json", "/etc/passwd"))
_GUARDED_ENDS = (".pem", ".key", ".p12", ".pfx", ".jks", ".keystore", ".kdbx", ".ppk", ".env")
_TEMPLATES = frozenset(("example", "sample", "template", "dist", "default", "defaults", "schema", "tpl"))


@cache
def secrecy_hint() -> str:
    """Return an expression, for `re` and for RE2, that matches in every path for which `secrecy` is not OPEN.

    Compile it without regard to case. It treats a NUL as the end of a path, so one text may hold many paths.
    """
    folders = (part for folder in _GUARDED_FOLDERS for part in folder.split("/"))
    files = (name.rpartition("/")[2] for name in _GUARDED)
    names = "|".join(map(re.escape, sorted({*_SEALED_FOLDERS, *_PASSWORDS, *_PROCESS, *folders, *files})))
    ends = "|".join(map(re.escape, _GUARDED_ENDS))
    return rf"(?:(?:^|/)(?:{names})|{ends})(?:[/\x00]|$)|(?:^|/)\.env\.|[*?\[]|[^\x00-\x7f]"


@cache
def _hint() -> re.Pattern[str]:
    return re.compile(secrecy_hint(), re.IGNORECASE)


class Secrecy(IntEnum):
    """The secrecy of a file."""

    OPEN = 0
    GUARDED = 1  # may hold secrets
    SEALED = 2  # holds only secrets


def secrecy(path: str) -> Secrecy:
    """Return how secret a file is, by the text of its path: absolute, relative, or below `~` or a variable.

    Case does not count. A pattern (`~/.s*h/id_*`) counts as the secret name that it matches, if it has enough letters.
    """
    if _hint().search(path) is None:
        return Secrecy.OPEN
    text = unicodedata.normalize("NFKC", path).casefold()
    absolute = text.startswith("/")
    parts = [part for part in posixpath.normpath(text).split("/") if part]
    if absolute and parts[:1] == ["proc"] and parts[2:3] == ["root"]:
        parts = parts[3:]  # /proc/PID/root is another name of /
    if absolute and parts[:1] == ["private"]:
        parts = parts[1:]
    if not parts:
        return Secrecy.OPEN
    if _sealed(parts, absolute=absolute):
        return Secrecy.SEALED
    return Secrecy.GUARDED if _guarded(parts, absolute=absolute) else Secrecy.OPEN


def _sealed(parts: list[str], *, absolute: bool) -> bool:
    name = parts[-1]
    if any(_is(name, folder) for folder in _SEALED_FOLDERS):  # `tar cf x ~/.ssh` takes all files in it
        return True
    if any(_is(part, folder) for part in parts[:-1] for folder in _SEALED_FOLDERS):
        return name not in _PUBLIC and not name.endswith((".pub", ".conf"))
    if not absolute:
        return False
    if parts[0] == "proc":
        return any(_is(name, secret) for secret in _PROCESS)
    return len(parts) > 1 and _is(parts[0], "etc") and any(_is(parts[1], secret) for secret in _PASSWORDS)


def _guarded(parts: list[str], *, absolute: bool) -> bool:
    name = parts[-1]
    words = name.split(".")
    if "env" in words and not _TEMPLATES.isdisjoint(words):
        return False
    if name.endswith(_GUARDED_ENDS) or name.startswith(".env."):
        return True
    places = {name, "/".join(parts[-2:]), "/".join(("", *parts)) if absolute else name}
    if not places.isdisjoint(_GUARDED) or any(_is(name, secret) for secret in _GUARDED):
        return True
    folders = {*parts, *map("/".join, pairwise(parts))}
    return not folders.isdisjoint(_GUARDED_FOLDERS)


def _is(part: str, secret: str) -> bool:
    """Return whether a name is that of a secret file, or a pattern that matches it and contains enough of its letters.

    In bash a pattern does not match the dot at the beginning of a name. `*` and `*.yml` do not count as secret names.
    """
    if part == secret:
        return True
    wild = [index for index, char in enumerate(part) if char in "*?["]
    if not wild or len(part) > MAX_PATTERN:
        return False
    hidden = secret.startswith(".")
    said = wild[0] > hidden and len(part) - len(wild) >= (2 if hidden else 3)
    return said and fnmatchcase(secret, part)


Redact: TypeAlias = Callable[[str], str]
"""Replaces the secrets of a whole text by placeholders. It is idempotent and never raises."""

_PLACEHOLDER = re.compile(r"\[REDACTED(?::[a-z0-9_-]{1,40})?\]")


def placeholder(kind: str) -> str:
    """Return `[REDACTED:kind]`. `kind` is lower-case words joined by `-`."""
    return f"[REDACTED:{kind}]"


def placeholders(text: str) -> Counter[str]:
    """Return every placeholder in a text, and how often it occurs."""
    return Counter(_PLACEHOLDER.findall(text))


def verbatim(text: str) -> str:
    """Return the text as it is: a Redact for texts without secrets."""
    return text


_WORDS = frozenset(
    (
        *("password", "passwd", "pwd", "passphrase", "passcode", "pin", "otp", "totp", "cvv", "cvc"),
        *("secret", "secrets", "token", "tokens", "credential", "credentials", "apikey"),
    )
)
_PAIRS = frozenset(
    (kind, "key") for kind in ("api", "access", "private", "secret", "auth", "ssh", "signing", "encryption", "recovery")
)
_PAIRED = frozenset((*_PAIRS, ("card", "number"), ("seed", "phrase"), ("security", "code")))
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")

_CREDENTIAL = (
    r"(?:passwords?|passwd|passphrase|passcode|otp|cvv|credentials?|client secret|seed phrase|card number|pin code"
    r"|(?:api|access|private|secret|ssh|auth|signing|encryption|recovery)[ _-]?keys?"
    r"|(?:api|access|auth|bearer|refresh|session)[ _-]?tokens?|(?:one-time|2fa|security) code)"
)
_ABOUT_IT = (
    r"(?!['\u2019]?s?[ _-]+(?:hash|field|polic|length|format|rotat|reset|manag|provid|stor|input|column|name|limit))"
)
_TELL = r"(?:enter|type in|type|paste|provide|send|share|give|tell|supply|insert|what(?: is|['\u2019]s))"


@cache
def _asking() -> re.Pattern[str]:
    """Return a pattern of sentences that ask for a secret. It takes a millisecond to compile."""
    return re.compile(
        rf"\b{_TELL}\b(?: me| us)? (?:your|the|an?)\b[^.?!;\n]{{0,40}}?\b{_CREDENTIAL}\b{_ABOUT_IT}"
        rf"|\byour\b[^.?!;\n]{{0,40}}?\b(?:{_CREDENTIAL}|tokens?|secret|pin)\b{_ABOUT_IT}"
        rf"|^\W*(?:{_CREDENTIAL}|token)\W*$",
        re.IGNORECASE,
    )


_ELSEWHERE = re.compile(r"\benv(?:ironment)?[ _-]?var(?:iable)?s?\b", re.IGNORECASE)
_SCANNED = 4000


def names_secret(name: str) -> bool:
    """Return whether a field of this name or label is for a secret: `apiKey`, `db_password`, `Access token`."""
    words = [word.lower() for word in _WORD.findall(name[:_SCANNED])]
    return bool(set(words) & _WORDS or words == ["key"] or set(pairwise(words)) & _PAIRED)


def asks_for_secret(text: str) -> bool:
    """Return whether a sentence asks for a secret. A sentence that only mentions secrets does not.

    A question about the environment variable that holds a secret is allowed.
    """
    scanned = text[:_SCANNED]
    return _asking().search(scanned) is not None and _ELSEWHERE.search(scanned) is None
