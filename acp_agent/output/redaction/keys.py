"""What the key of an assignment announces: a password may be a word, a token must look like chance."""

import re
from collections.abc import Callable
from enum import Enum, auto
from functools import lru_cache
from typing import NamedTuple, TypeAlias

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_PASSWORD = re.compile(r"passw|passphrase|passcode|pwd|psk|pass\Z")
_OTHER = re.compile(r"passw|passphrase|passcode|pwd|pass\Z|secret|token|credential|key")
_PASSES = re.compile(r"(?:by|buy|com|encom|sur|tres|mini|multi|over|under|low|high|band)pass\Z")
_FIRST = """
    public pub sort primary foreign cache partition max min num n total count prompt completion input output used
    remaining eos bos pad unk sep cls mask special next prev page continuation stop cancellation cancel design no
    show hide toggle forgot confirm verify validate reset has is can require requires missing invalid without via
    parse lexer syntax idempotency routing dedup dedupe lookup group row hash range map json query registry object
    state"""
_LAST = """
    length len min max size count limit type name names file files filename path paths dir directory url uri endpoint
    expires expiry expiration expired exp ttl lifetime age timeout at field fields label hint help regex pattern policy
    rule rules strength required enabled disabled valid validator manager provider service store ref arn version format
    algorithm alg method mode kind column input form placeholder prompt text title message msg error errors env var
    usage budget hash hashed digest encoder style class cls index idx position pos offset line lines scope scopes issuer
    audience status state changed updated created reset id ids description desc note info stdin fd prefix suffix source
    link page view screen button icon spec count counts rate cost price per tokens_per used left remaining stream
    rotation days minutes seconds hours ms handler callback factory builder resolver getter sha checksum fingerprint
    location region bucket ui tokenizer parser lexer encryption fallback history projection"""
_HARMLESS_FIRST, _HARMLESS_LAST = frozenset(_FIRST.split()), frozenset(_LAST.split())
_TOKENIZERS = re.compile(r"tokeni[sz]|tokenlist|passwordless|secretar|secretsmanager|tokenid\Z|keyid\Z|passthr")


class Key(Enum):
    """What a key announces."""

    PASSWORD = auto()
    SECRET = auto()


def key_of(key: str) -> Key | None:
    """What a key announces; None for one that only sounds like it: `max_tokens`, `password_field`, `public_key`."""
    words = [word.lower() for word in _WORDS.findall(key)]
    joined = "".join(words)
    if not words or _TOKENIZERS.search(joined):
        return None
    if words[0] in _HARMLESS_FIRST or "public" in words or words[-1] in _HARMLESS_LAST - _kept(joined):
        return None
    if not _OTHER.search(joined) and not any(re.search(r"\Apsk|psk\Z", word) for word in words):
        return None  # backupskip
    if _PASSWORD.search(joined):
        return None if _PASSES.search(words[-1]) else Key.PASSWORD
    return Key.SECRET


def _kept(joined: str) -> frozenset[str]:
    """Last words that are no excuse here: Vault's secret_id, GCP's private_key_id."""
    return frozenset(("id",)) if joined.endswith(("secretid", "privatekeyid")) else frozenset()


@lru_cache(4096)  # logs say the same again and again
def meant_by(key: bytes) -> Key | None:
    """`key_of` for bytes."""
    return key_of(key.decode("latin-1"))


class Meaning(NamedTuple):
    """What the key of a pair announces. `random`: only a value that looks like chance counts, as of `FOO_KEY`."""

    key: Key
    category: str
    random: bool


Meant: TypeAlias = Callable[[bytes], Meaning | None]
"""Tells what a word before `=` or `:` announces."""

_SOUNDS = re.compile(rb"(?i)passw|passphrase|passcode|pass\Z|pwd|psk|secret|token|credential|key")
_ENVIRONMENT = re.compile(rb"(?:\A|[.-])[A-Z][A-Z0-9_]*_KEY\Z")


def meaning_of(word: bytes, sounds_secret: Callable[[bytes], bool]) -> Meaning | None:
    """What a word announces; `sounds_secret` tells whether it is one of the keys the rules know."""
    if _SOUNDS.search(word) is None or (key := meant_by(word)) is None:
        return None
    if sounds_secret(word):
        return Meaning(key, category_of(word), random=False)
    return Meaning(key, category_of(word), random=True) if _ENVIRONMENT.search(word) else None


def category_of(key: bytes) -> str:
    """What the secret of a key is called."""
    name = key.lower()
    if b"passw" in name or b"passphrase" in name or b"pwd" in name:
        return "password"
    if b"token" in name:
        return "token"
    return "api-key" if b"key" in name else "password"
