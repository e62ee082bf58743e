"""Find the secrets in assignments such as `key = value`."""

import base64
import binascii
import re
from collections.abc import Callable, Iterator
from enum import Enum, StrEnum, auto
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple, TypeAlias, assert_never

from acp_agent.text import lazy_regex


class Guard(StrEnum):
    """A condition that a secret must meet in addition to its form.

    RANDOM     letters and digits in a random mixture
    USERINFO   base64 of `user:password`, in any character set (RFC 7617)
    PEM        base64 of a private key
    PASSWORD   neither a placeholder nor a variable
    """

    RANDOM = "random"
    USERINFO = "userinfo"
    PEM = "pem"
    PASSWORD = "password"  # noqa: S105 - a name


_STAND_IN = lazy_regex(
    r"""(?ix) \A(?: <.* | .*\.{3} | .*… | \[.*\] | (?P<one>[\w*.•-])(?P=one)* | [x*.•_\-\s/:\#]+
        | (?:(?:insert|enter|put|use|replace|add|set|change|type|paste)[-_ ]?)?
          (?:your|you|our|the|my|this|a|an)?[-_ ]?(?:own[-_ ])?(?:[a-z]+[-_ ]){0,2}
          (?:here|me|placeholder|password|passwd|passphrase|pass|pwd|secret|token|api[-_]?key|apikey|key|value|example
            |changeme|redacted|hidden|masked|removed|credentials?)
        | your[-_ ]?[a-z_\-\ ]+ | changeme!?\d* | (?:username|credential|realm|nonce)=?
        | todo | tbd | fixme | dummy | none | null | nil | undefined | n/?a
        | true | false | yes | no | on | off | required | optional | empty | unset | default
      )\Z"""
)
_TEMPLATE = lazy_regex(
    # Not beyond the next beginning, or many of them would take quadratic time.
    r"\$\{[^}\s]*\}?|\$\([a-z](?:(?!\$\([a-z])[^)])*+\)?\Z|\{\{(?:(?!\{\{).)*?\}\}|<%|%\([a-z_]+\)|#\{|\{[A-Za-z_][\w.]*\}|\[REDACTED"
    r"|\{[a-z_][a-z_.]{3,}(?:![rsa])?\Z|\{\.[A-Za-z]|<[A-Za-z_ -]*>|<(?:span|code|em|b|a|p)\Z|&(?:\#x3C|lt);"
    r"|%\([A-Za-z_]+\)[sdr]|%[sdr](?:[%:/,-]|\Z)"
    r"|\A\$[A-Za-z_][\w:.]*\Z|\A%[A-Za-z_]*%?\Z"
)


def allows(guard: Guard, value: bytes) -> bool:
    """Return whether a value meets the condition."""
    match guard:
        case Guard.RANDOM:
            return is_random(value.decode("latin-1"))
        case Guard.USERINFO:
            return _is_userinfo(value)
        case Guard.PEM:
            return b"PRIVATE KEY" in _decoded(value[:400])
        case Guard.PASSWORD:
            return not stands_in(value.decode("latin-1"))
        case _:
            assert_never(guard)


def stands_in(value: str) -> bool:
    """Return whether a value is a placeholder, a variable or a template in place of a secret."""
    return _STAND_IN.match(value) is not None or _TEMPLATE.search(value) is not None


_WORDY = lazy_regex(  # words, versions and numbers between signs
    r"(?:(?:[A-Za-z]{2,}\d{0,2}|v?\d{1,4})(?=[-_./:@]|\Z))(?:[-_./:@]++(?:(?:[A-Za-z]+\d{0,2}|v?\d{1,4})(?=[-_./:@]|\Z))?)*+"
)


def is_random(value: str) -> bool:
    """Return whether a value has at least 12 letters and digits in a mixture that no name has."""
    if len(value) < 12 or stands_in(value):
        return False
    digits = sum(character.isdigit() for character in value)
    letters = sum(character.isalpha() for character in value)
    return digits > 0 and letters > 0 and _WORDY.fullmatch(value) is None and not _is_title(value)


def _is_title(value: str) -> bool:
    """Return whether a value is a name of many words, as tests have: `test_draft202012_is_chosen`."""
    parts = re.split(r"[-_./:]+", value)
    words = [part for part in parts if re.fullmatch(r"[A-Za-z][a-z]+(?:[A-Z][a-z]+)*", part)]
    return len(words) >= 3 and sum(map(len, words)) * 2 > len(value)


def _is_userinfo(value: bytes) -> bool:
    plain = _decoded(value)
    user, colon, _ = plain.partition(b":")
    if not colon or re.fullmatch(rb"[\x20-\x7e]*", user) is None:
        return False
    try:
        plain.decode()
    except UnicodeDecodeError:
        return bool(user) and is_random(value.decode("latin-1"))
    return True


def _decoded(value: bytes) -> bytes:
    """Return the decoded base64, up to the first invalid part; empty if it is not base64."""
    value = value.rstrip(b"=")
    value = value[: len(value) - (len(value) % 4 == 1)]
    try:
        return base64.b64decode(value + b"=" * (-len(value) % 4), validate=True)
    except binascii.Error:
        return b""


_WORDS = lazy_regex(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_PASSWORD = lazy_regex(r"passw|passphrase|passcode|pwd|psk|pass\Z")
_OTHER = lazy_regex(r"passw|passphrase|passcode|pwd|pass\Z|secret|token|credential|key")
_PASSES = lazy_regex(r"(?:by|buy|com|encom|sur|tres|mini|multi|over|under|low|high|band)pass\Z")
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
    location region bucket ui tokenizer parser lexer encryption fallback history projection hasher hashers hashing
    scheme backend backends engine derivation"""
_HARMLESS_FIRST, _HARMLESS_LAST = frozenset(_FIRST.split()), frozenset(_LAST.split())
_TOKENIZERS = lazy_regex(r"tokeni[sz]|tokenlist|passwordless|secretar|secretsmanager|tokenid\Z|keyid\Z|passthr")


class KeyKind(Enum):
    """The kind of secret that a key names."""

    PASSWORD = auto()
    SECRET = auto()


def key_of(key: str) -> KeyKind | None:
    """Return the kind of value of a key. None for names that only sound secret: `max_tokens`, `public_key`."""
    words = [word.lower() for word in _WORDS.findall(key)]
    joined = "".join(words)
    if not words or _TOKENIZERS.search(joined):
        return None
    if words[0] in _HARMLESS_FIRST or "public" in words or words[-1] in _HARMLESS_LAST - _kept(joined):
        return None
    if not _OTHER.search(joined) and not any(re.search(r"\Apsk|psk\Z", word) for word in words):
        return None  # such as backupskip
    if _PASSWORD.search(joined):
        return None if _PASSES.search(words[-1]) else KeyKind.PASSWORD
    return KeyKind.SECRET


def _kept(joined: str) -> frozenset[str]:
    """Return the last words that are not harmless in this key: `id` in Vault's secret_id and GCP's private_key_id."""
    return frozenset(("id",)) if joined.endswith(("secretid", "privatekeyid")) else frozenset()


@lru_cache(4096)  # cached, because logs repeat the same keys
def meant_by(key: bytes) -> KeyKind | None:
    """Return `key_of` for bytes."""
    return key_of(key.decode("latin-1"))


class Meaning(NamedTuple):
    """The kind of value of a key. If `random`, only a random-looking value is secret, as for `FOO_KEY`."""

    key: KeyKind
    category: str
    random: bool


Meant: TypeAlias = Callable[[bytes], Meaning | None]
"""Returns the meaning of a word before `=` or `:`."""

_SOUNDS = lazy_regex(rb"(?i)passw|passphrase|passcode|pass\Z|pwd|psk|secret|token|credential|key")
_ENVIRONMENT = lazy_regex(rb"(?:\A|[.-])[A-Z][A-Z0-9_]*_KEY\Z")


def meaning_of(word: bytes, sounds_secret: Callable[[bytes], bool]) -> Meaning | None:
    """Return the meaning of a word as a key. `sounds_secret` returns True for keys that the rules know."""
    if _SOUNDS.search(word) is None or (key := meant_by(word)) is None:
        return None
    if sounds_secret(word):
        return Meaning(key, category_of(word), random=False)
    return Meaning(key, category_of(word), random=True) if _ENVIRONMENT.search(word) else None


def category_of(key: bytes) -> str:
    """Return the category of the secret of a key."""
    name = key.lower()
    if b"passw" in name or b"passphrase" in name or b"pwd" in name:
        return "password"
    if b"token" in name:
        return "token"
    return "api-key" if b"key" in name else "password"


_HASH = lazy_regex(
    r"\A(?:\$(?:2[abxy]?|argon2\w*|[156y]|pbkdf2\S*|scrypt|apr1)\$|\{?(?:S?SHA\d*|pbkdf2\w*|bcrypt)[}$:]|sha\d+[-:])",
    re.IGNORECASE,
)
_PUBLIC = lazy_regex(
    r"\A(?:AAAA[BCE]3Nza|iVBORw0KGgo|/9j/|R0lGOD|data:|ssh-|arn:|op://|vault:|file:|https?://|urn:|\w+://)",
    re.IGNORECASE,
)
_PATH = lazy_regex(
    r"\A(?:~|\.{1,2}|[A-Za-z]:)?[/\\][\w.@ -]*(?:[/\\][\w.@ -]*)*\Z"
    r"|\A[\w.-]+/[\w./-]+\.(?:pem|key|txt|json|ya?ml|crt|env)\Z"
)
_CODE = lazy_regex(
    r"""(?x) \A(?: [A-Za-z_$][\w.$:>?!-]*[\(\[] .*            # a call, an index
        | [A-Za-z_$][\w$]*(?:(?:\?|!)?\.|::|->)[A-Za-z_$].*(?<![=]) # an attribute
        | [A-Za-z]+<[A-Za-z_&'(\[].*                         # a type of something
        | :[A-Za-z].* | [a-z][a-z_]*=(?:[A-Za-z_]+)?          # a symbol; another argument
        | [\(\[\{<*&!@%|>)\]}].* | =.* | [-+]\Z
        | \\?\$.* )\Z"""
)
_CALLED = lazy_regex(r"[A-Za-z_$][\w$.:?!>-]*+(?=[\(\[])")
_REGEX = lazy_regex(r"\(\?[:=!#<Pi]|\\[wdsWDSbB]|\[\^?(?:a-z|A-Z|0-9|\\)|a-zA-Z|A-Za-z|0-9a-z|a-z0-9|A-Z0-9")
_VERSION = lazy_regex(r"\A[\^~<>=v ]*\d+(?:\.(?:\d+|[x*])){1,3}(?:-[a-z]+[.\d]*)?\Z")
_DOTTED = lazy_regex(r"\A[A-Za-z_$][\w$]*(?:(?:[?!]?\.|::|->)[A-Za-z_$][\w$]*)+\Z")
_NUMBER = lazy_regex(r"\A[-+]?[\d.,:_/TZ+-]+(?:[smhdkKMGB%]|ms|[kKMG]i?B)?\Z|\A0x[0-9a-fA-F]{1,16}\Z")
_NAME = lazy_regex(r"\A[A-Za-z_][A-Za-z_.:/@-]*\Z")
_NUMBERED_NAME = lazy_regex(r"\A[A-Za-z]{2,}(?:[_.:/-]+[A-Za-z]+)*[_.-]?v?\d{0,2}\Z")
_PART = r"(?:[A-Z]?[a-z]{1,14}+\d{0,3}+[a-z]{0,14}+|\d{1,4}+)"
_NAMES = lazy_regex(rf"\A\W?{_PART}(?:[_.-]{_PART})++\Z|\A\W[A-Za-z_-]++\Z")  # gs_oauth2_refresh_token, #bygroup
_MAIL = lazy_regex(r"\A[\w.+-]++@[\w-]++(?:\.[\w-]++)+\Z")
_KEYWORD = lazy_regex(
    r"(?i)passw|secret|token|key|credential|auth|field|input|label|require|invalid|must|error|string|str\Z"
)
_TYPE = lazy_regex(
    r"(?i)\A(?:str(?:ing)?|int(?:eger)?|bytes?|bool(?:ean)?|any|object|text|varchar|char|number|optional|self|this|list|dict"
    r"|regexp?|bearer|basic|digest|jwt|oauth2?|none|null|undefined|unknown|enabled|disabled|expired|failed|success|accepted"
    r"|rejected|denied|mismatch|incorrect|wrong|missing|invalid|encrypted|hashed|plaintext|sensitive|private|public"
    r"|passwort|kennwort|wachtwoord|contrase\S*|senha|parola|salasana|adgangskode|haslo|mot de passe|password\w*)\Z"
)
_UUID = lazy_regex(r"\A[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\Z")
_SHORTEST = {KeyKind.PASSWORD: 4, KeyKind.SECRET: 8}  # characters
_OPENED = lazy_regex(r"[\[({][A-Za-z_]*\Z")
_LOWER = lazy_regex(r"[a-z]+(?:-[a-z]+)*\Z")
_CALLED_NEXT, _OPERATOR = lazy_regex(r"\(|\[|\.\w"), lazy_regex(r" [-+*/%|&] ")
_NEXT_WORD = lazy_regex(r"[:,;.]?\s+[A-Za-z(]")  # of a sentence, or of the next line of code


def is_secret(meant: KeyKind, value: str) -> bool:
    """Return whether a whole, delimited value is a secret."""
    if len(value) < _SHORTEST[meant] or _is_innocent(value):
        return False
    if any(blank in value for blank in " \t\n"):
        return _is_passphrase(meant, value)
    return _is_password(value) if meant is KeyKind.PASSWORD else _is_token(value)


def is_bare_secret(meant: KeyKind, value: str, after: str, *, in_environment: bool) -> bool:
    """Return whether an unquoted value is a secret: in an environment file, YAML, INI, a log, or code."""
    if len(value) < _SHORTEST[meant] or _is_call(value + after[:1]) or _OPENED.match(value):
        return False
    if meant is KeyKind.SECRET and _is_type_name(value):
        return False
    is_name = _NAME.match(value) is not None
    if in_environment and not _DOTTED.match(value) and "(" not in value:
        if meant is KeyKind.PASSWORD and is_name:
            return len(value) >= 6 and not _is_innocent(value) and not re.match(r" [A-Za-z]", after)
        return is_secret(meant, value)
    is_jumble = len(value) >= 12 and _is_jumble(value)
    if _is_code(value, after) or (not is_jumble and (is_name or value.isdigit()) and _NEXT_WORD.match(after)):
        return False
    if meant is KeyKind.PASSWORD and is_name and not is_jumble and not _LOWER.match(value):
        return False
    return is_secret(meant, value)


def _is_password(value: str) -> bool:
    if not _NAME.match(value):
        return not _DOTTED.match(value)
    return len(value) >= 8 and not _KEYWORD.search(value) and (value == value.lower() or _is_jumble(value))


def _is_token(value: str) -> bool:
    if _UUID.match(value):
        return True
    if _NAME.match(value):
        if _has_random_case(value):
            return not _is_type_name(value)
        is_lower = value == value.lower() and not _KEYWORD.search(value)
        return is_lower and value.count("-") >= 2 and len(value) >= 16
    if _NUMBER.match(value) or _NUMBERED_NAME.match(value) or _NAMES.match(value):
        return False
    return not (_is_type_name(value) or _is_call(value) or _MAIL.match(value))


def _is_code(value: str, after: str) -> bool:
    if _CODE.match(value) and not (is_random(value) and "." not in value and value[0] not in "([{<$"):
        return True
    return bool(_CALLED_NEXT.match(after) or (_NAME.match(value) and _OPERATOR.match(after)))


def _is_innocent(value: str) -> bool:
    return bool(
        stands_in(value)
        or _TYPE.match(value)
        or _HASH.match(value)
        or _PUBLIC.match(value)
        or _VERSION.match(value)
        or _REGEX.search(value)
        or (value.count("/") >= 3 and _is_resource(value))
        or not re.search(r"[^\W_]", value)
        or re.fullmatch(r"--?[a-z][a-z-]*", value)  # another option
        or (_PATH.match(value) and not _looks_base64(value))
        or (_NUMBER.match(value) and not value.isdigit() and not _UUID.match(value))
        or re.fullmatch(r"[A-Z]+(?:_[A-Z0-9]+)+", value)
    )


def _looks_base64(value: str) -> bool:
    return (
        len(value) >= 20 and "." not in value and " " not in value and value.count("/") < 5 and _has_random_case(value)
    )


def _has_random_case(value: str) -> bool:
    """Return whether there are capitals where no word begins: `wJalrXUtnFEMI`."""
    changes = sum(a.islower() != b.islower() for a, b in pairwise(value) if a.isalpha() and b.isalpha())
    return len(value) >= 16 and changes * 3 >= len(value)


def _is_jumble(value: str) -> bool:
    """Return whether the parts between the capitals of a name are not words: `QGPegaKZDFYMVVf`."""
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", value)
    odd = sum(
        len(word) == 1 or not re.search(r"(?i)[aeiouy]", word) or re.fullmatch(r"[A-Z]{7,}", word) is not None
        for word in words
    )
    is_odd = odd >= 2 and odd * 2 >= len(words)
    return len(value) >= 10 and value != value.upper() and (is_odd or 4 <= len(words) > sum(map(len, words)) / 3)


def _is_type_name(value: str) -> bool:
    """Return whether a value looks like the name of a type: `PKCS7PrivateKeyTypes`."""
    words = re.findall(r"(?:[A-Z]+(?![a-z])|[A-Z][a-z]+)\d?", value)
    return len(words) >= 2 and "".join(words) == value and len(value) >= 3.5 * len(words) and not _is_jumble(value)


def _is_call(value: str) -> bool:
    """Return whether a value begins as a call or an index does: `b64encode(`, `options[`."""
    called = _CALLED.match(value) if "(" in value or "[" in value else None
    if called is None or re.search(r"[a-z_]{2}", called[0]) is None:
        return False
    digits = sum(character.isdigit() for character in called[0])
    return digits <= 3 or digits * 4 <= len(called[0])


def _is_resource(value: str) -> bool:
    """Return whether a value is a path of names: `projects/my-project/locations/us-east1/keyRings/1`."""
    parts = value.strip("/").split("/")
    return all(re.fullmatch(r"[A-Za-z]++(?:[_.-][A-Za-z]++)*+-?\d{0,4}|\d{1,6}|\*", part) for part in parts)


_SENTENCE = """the and for you your are not can with must should will from this that has have been was enter please when
    new old password passphrase invalid more"""
_GRAMMAR = frozenset(_SENTENCE.split())


def _is_passphrase(meant: KeyKind, value: str) -> bool:
    """Return whether a value with blanks is a passphrase, not a label: it has digits and signs, or is no sentence."""
    if meant is not KeyKind.PASSWORD:
        return False
    words = value.split()
    strange = [word for word in words if re.search(r"[A-Za-z]", word) and re.search(r"\d|[@#$%^&*]", word)]
    if len(words) <= 4 and len(strange) >= 2:
        return True
    return (
        4 <= len(words) <= 12
        and all(re.fullmatch(r"[a-z]{3,12}", word) for word in words)
        and not (_GRAMMAR & frozenset(words))
    )


_VALUE = lazy_regex(
    rb"""[ \t]*+(?:
        [bBrRuUfF@$]{0,2}"(?P<double>(?:[^"\\\n]|\\.)*+)
      | [bBrRuUfF]{0,2}'(?P<single>(?:[^'\\\n]|\\.)*+)
      | `(?P<tick>[^`\n]*+)
      | \\+["'](?P<escaped>[^"'\\\n]*+)
      | (?P<bare>[^\s"'`]{1,256}+)
    )""",
    re.VERBOSE,
)
_LONGEST_LOOK = 256  # bytes of an unquoted value that are read
_MOST_SIGNS = 8
_MIXED = lazy_regex(rb"[^\s.,;:]*[A-Za-z][^\s.,;:]*\d|[^\s.,;:]*\d[^\s.,;:]*[A-Za-z]")
_REST = lazy_regex(rb"""[^\s"'`]*+""")
_NEIGHBOUR = lazy_regex(  # ends an unquoted value: the next of several values, an escape, a closing bracket
    r"(?<![,;&|])[,;&|]++[\w.-]*+(?:[=:]|\Z)|\\[nrt]|&quot;|</|(?<![)\]}>,;])[)\]}>,;]++\Z|[)\]}][,;.:{)\]}]"
)
_ELEMENT = lazy_regex(rb"[ \t]*(?:<!\[CDATA\[)?([^<\n\]]{1,512}+)(?:\]\]>)?<\\?/")
_PLACE = lazy_regex(rb"\d{1,7}[:-]")  # the line number after a file name and a colon
_RESULT = lazy_regex(rb"X?PASS")  # the result of a test
_TEST = lazy_regex(r"[A-Za-z_./-]+\d{0,6}")  # a possible name of that test
_SIGNS = lazy_regex(rb"[^a-z0-9]")
_ARN = lazy_regex(rb"\barn:[^\s\"']{0,200}\Z")
_VARIABLE = lazy_regex(rb"[A-Za-z]+(?:_[A-Za-z0-9]+)+[,;)}\]]*\Z")

_SIGN = rb"""["'`\\\])]{0,6}+([ \t]*+(?::=|=>|[!=]?={1,3}+|:|=)[ \t]*+)(?!["']?\[REDACTED)"""
_PAIR = lazy_regex(  # skips placeholders, and words that no sign and value follow, so that each is tried only once
    rb"(?:[^A-Za-z0-9_.\[-]++|\[(?:REDACTED[:a-z0-9_-]*+\])?+|[A-Za-z0-9_.-]++(?!%(sign)s))*+"
    rb"(?:([A-Za-z0-9_.-]++)%(sign)s|\Z)" % {b"sign": _SIGN}
)
_CLEAR = lazy_regex(  # values that can only be random, so that no further check is needed
    rb"""(["']?+) (?!(?i:AAAA|iVBOR|R0lGOD|changeme))
        (?=[A-Za-z]*+[0-9]++[A-Za-z])                    # no name with a number
        (?=[a-z0-9]|[A-Za-z0-9]*?[0-9][a-z0-9])          # no type
        (?=[A-Za-z0-9]*?[A-SU-Ya-z][A-Za-z0-9]{4})       # no number with a unit, no time
        ([A-Za-z0-9]{20,200}+) (?=(["'])|\s|\Z)""",
    re.VERBOSE,
)
_QUOTES = (b'"', b"'")
_BEFORE = lazy_regex(  # the end of an escape or of a colour before a key
    rb"(?<=\\)(?:[nrtbf]|u00[0-9a-fA-F]{2})|(?<=%)[0-9A-Fa-f]{2}|(?<=[\[;])\d{0,3}[mK]"
)
_MAY_PRECEDE = b"\\%[;"


def pairs(data: bytes, start: int, end: int, meant: Meant) -> Iterator[tuple[int, int, str, int]]:
    """Yield every `key = value` with a secret in the whole lines from `start` to `end`.

    Each has the start and end of the secret, its category, and the start of its key.
    """
    match, position = _PAIR.match, start
    while (found := match(data, position, end)) is not None and (word := found[2]) is not None:
        position = found.end()
        low, high = found.span(2)
        if low and data[low - 1] in _MAY_PRECEDE and (before := _BEFORE.match(data, low, high)) is not None:
            low = before.end()
            word = data[low:high]
        if (meaning := meant(word)) is None:
            continue
        span = _clear(data, (low, high), found[3], position, end)
        if span is None and (span := assigned(data, (low, high), found[3], position, end)) is None:
            continue
        if not meaning.random or is_random(data[slice(*span)].decode("latin-1")):
            yield (*span, meaning.category, low)
            position = max(position, span[1])  # apparent assignments inside a value are skipped


def _clear(data: bytes, key: tuple[int, int], sign: bytes, start: int, end: int) -> tuple[int, int] | None:
    """Return the span of an undoubtedly random value of letters and digits. None if `assigned` has to decide.

    The span is the same as that of `assigned`, and takes a tenth of the time.
    """
    found = _CLEAR.match(data, start, end)
    if found is None or found[1] != (found[3] or b""):
        return None
    low, high = key
    is_doubtful = sign == b":" and data[low - 1 : low] not in _QUOTES
    return None if is_doubtful or len(found[2]) <= high - low else found.span(2)  # the value may only repeat its key


def assigned(data: bytes, key: tuple[int, int], sign: bytes, start: int, end: int) -> tuple[int, int] | None:
    """Return the span of the secret that is assigned to a key, or None.

    key     the start and end of the key
    sign    the text between key and value, including blanks; empty after an option or an XML tag
    start   where the value begins
    """
    low, high = key
    low += data[low - 1 : low] == b"\\" and data[low : low + 1] in b"nrtbf"  # the `n` of an escape such as `\\n`
    meant = meant_by(data[low:high])
    if meant is None or _is_no_key(data, low, sign, start):
        return None
    if not sign and data[start - 1 : start] == b">":
        found = _ELEMENT.match(data, start, end)
        return found.span(1) if found and is_secret(meant, found[1].decode("latin-1").strip()) else None
    found = _VALUE.match(data, start, end)
    if found is None:
        return None
    group = found.lastgroup or "bare"
    if group == "bare":
        is_variable = data[high : high + 1] in (b'"', b"'") and _VARIABLE.match(found[group]) is not None
        return None if is_variable else _bare(meant, data[low:high], found, sign, data, end)
    span, value = found.span(group), found[group].decode("latin-1")
    if _repeats(data[low:high], found[group]) or not is_secret(meant, value):
        return None
    if b"," in sign and not is_random(value) and not _is_whole_pair(data, low - 1, span[1] + 1):
        return None
    return span


def _repeats(key: bytes, value: bytes) -> bool:
    """Return whether a value only repeats its key, as code does with variables: `clientSecret=client_secret`."""
    value = _SIGNS.sub(b"", value.lower())
    return len(value) >= 6 and _SIGNS.sub(b"", key.lower()).endswith(value)


def _is_no_key(data: bytes, low: int, sign: bytes, start: int) -> bool:
    """Return whether the key is a file name before a line number, a path of names, or a part of an ARN."""
    if sign.strip() != b":":
        return False
    if data[start : start + 1] == b":":
        return True
    return sign == b":" and bool(_PLACE.match(data, start) or _ARN.search(data, max(0, low - 200), low))


def _is_whole_pair(data: bytes, opening: int, closing: int) -> bool:
    """Return whether brackets hold only `"key", "value"`, and these are not two words of a list."""
    before, after = data[max(0, opening - 8) : opening].rstrip()[-1:], data[closing : closing + 8].lstrip()[:1]
    return before in (b"(", b"[", b"{") and after in (b")", b"]", b"}")


def _bare(
    meant: KeyKind, key: bytes, found: re.Match[bytes], sign: bytes, data: bytes, end: int
) -> tuple[int, int] | None:
    value = found["bare"].decode("latin-1")
    if b"," in sign or (sign[-2:-1].isalpha() and not _MIXED.match(found["bare"])):
        return None  # an argument of a call or a sentence: a name is not a value there
    if len(value) == _LONGEST_LOOK and value.count(":") + value.count("=", 0, -3) > _MOST_SIGNS:
        return None  # a chain of assignments: each is judged by itself
    neighbour = _NEIGHBOUR.search(value)
    value = value[: neighbour.start()] if neighbour else value
    start = found.start("bare")
    end_of_value = start + len(value)
    after = data[end_of_value : found.end() + 16].decode("latin-1")
    if _RESULT.fullmatch(key) and sign[:1] == b":" and (_TEST.fullmatch(value) or not is_random(value)):
        return None
    if not is_bare_secret(meant, value, after, in_environment=sign == b"=") or _repeats(key, value.encode("latin-1")):
        return None
    rest = _REST.match(data, found.end(), end) if end_of_value == found.end() else None
    return start, rest.end() if rest else end_of_value
