"""Whether the value of an assignment is a secret.

Code, names, paths, placeholders, labels, counts and hashes are none.
"""

import re
from itertools import pairwise

from acp_agent.output.redaction.guards import is_random, stands_in
from acp_agent.output.redaction.keys import Key

_HASH = re.compile(
    r"\A(?:\$(?:2[abxy]?|argon2\w*|[156y]|pbkdf2\S*|scrypt|apr1)\$|\{?(?:S?SHA\d*|pbkdf2\w*|bcrypt)[}$:]|sha\d+[-:])",
    re.IGNORECASE,
)
_PUBLIC = re.compile(
    r"\A(?:AAAA[BCE]3Nza|iVBORw0KGgo|/9j/|R0lGOD|data:|ssh-|arn:|op://|vault:|file:|https?://|urn:|\w+://)",
    re.IGNORECASE,
)
_PATH = re.compile(
    r"\A(?:~|\.{1,2}|[A-Za-z]:)?[/\\][\w.@ -]*(?:[/\\][\w.@ -]*)*\Z"
    r"|\A[\w.-]+/[\w./-]+\.(?:pem|key|txt|json|ya?ml|crt|env)\Z"
)
_CODE = re.compile(
    r"""(?x) \A(?: [A-Za-z_$][\w.$:>?!-]*[\(\[] .*            # a call, an index
        | [A-Za-z_$][\w$]*(?:(?:\?|!)?\.|::|->)[A-Za-z_$].*(?<![=]) # an attribute
        | [A-Za-z]+<[A-Za-z_&'(\[].*                         # a type of something
        | :[A-Za-z].* | [a-z][a-z_]*=(?:[A-Za-z_]+)?          # a symbol; another argument
        | [\(\[\{<*&!@%|>)\]}].* | =.* | [-+]\Z
        | \\?\$.* )\Z"""
)
_CALLED = re.compile(r"[A-Za-z_$][\w$.:?!>-]*+(?=[\(\[])")
_REGEX = re.compile(r"\(\?[:=!#<Pi]|\\[wdsWDSbB]|\[\^?(?:a-z|A-Z|0-9|\\)|a-zA-Z|A-Za-z|0-9a-z|a-z0-9|A-Z0-9")
_VERSION = re.compile(r"\A[\^~<>=v ]*\d+(?:\.(?:\d+|[x*])){1,3}(?:-[a-z]+[.\d]*)?\Z")
_DOTTED = re.compile(r"\A[A-Za-z_$][\w$]*(?:(?:[?!]?\.|::|->)[A-Za-z_$][\w$]*)+\Z")
_NUMBER = re.compile(r"\A[-+]?[\d.,:_/TZ+-]+(?:[smhdkKMGB%]|ms|[kKMG]i?B)?\Z|\A0x[0-9a-fA-F]{1,16}\Z")
_NAME = re.compile(r"\A[A-Za-z_][A-Za-z_.:/@-]*\Z")
_NUMBERED_NAME = re.compile(r"\A[A-Za-z]{2,}(?:[_.:/-]+[A-Za-z]+)*[_.-]?v?\d{0,2}\Z")
_PART = r"(?:[A-Z]?[a-z]{1,14}+\d{0,3}+[a-z]{0,14}+|\d{1,4}+)"
_NAMES = re.compile(rf"\A\W?{_PART}(?:[_.-]{_PART})++\Z|\A\W[A-Za-z_-]++\Z")  # gs_oauth2_refresh_token, #bygroup
_MAIL = re.compile(r"\A[\w.+-]++@[\w-]++(?:\.[\w-]++)+\Z")
_KEYWORD = re.compile(
    r"(?i)passw|secret|token|key|credential|auth|field|input|label|require|invalid|must|error|string|str\Z"
)
_TYPE = re.compile(
    r"(?i)\A(?:str(?:ing)?|int(?:eger)?|bytes?|bool(?:ean)?|any|object|text|varchar|char|number|optional|self|this|list|dict"
    r"|regexp?|bearer|basic|digest|jwt|oauth2?|none|null|undefined|unknown|enabled|disabled|expired|failed|success|accepted"
    r"|rejected|denied|mismatch|incorrect|wrong|missing|invalid|encrypted|hashed|plaintext|sensitive|private|public"
    r"|passwort|kennwort|wachtwoord|contrase\S*|senha|parola|salasana|adgangskode|haslo|mot de passe|password\w*)\Z"
)
_UUID = re.compile(r"\A[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\Z")
_SHORTEST = {Key.PASSWORD: 4, Key.SECRET: 8}  # characters
_OPENED = re.compile(r"[\[({][A-Za-z_]*\Z")
_LOWER = re.compile(r"[a-z]+(?:-[a-z]+)*\Z")
_CALLED_NEXT, _OPERATOR = re.compile(r"\(|\[|\.\w"), re.compile(r" [-+*/%|&] ")
_NEXT_WORD = re.compile(r"[:,;.]?\s+[A-Za-z(]")  # of a sentence, or of the next line of code


def is_secret(meant: Key, value: str) -> bool:
    """Whether a whole, delimited value is a secret."""
    if len(value) < _SHORTEST[meant] or _is_innocent(value):
        return False
    if any(blank in value for blank in " \t\n"):
        return _is_passphrase(meant, value)
    return _is_password(value) if meant is Key.PASSWORD else _is_token(value)


def is_bare_secret(meant: Key, value: str, after: str, *, in_environment: bool) -> bool:
    """The same for a value without quotes: in an environment file, YAML, INI, a log, or code."""
    if len(value) < _SHORTEST[meant] or _is_call(value + after[:1]) or _OPENED.match(value):
        return False
    if meant is Key.SECRET and _is_type_name(value):
        return False
    is_name = _NAME.match(value) is not None
    if in_environment and not _DOTTED.match(value) and "(" not in value:
        if meant is Key.PASSWORD and is_name:
            return len(value) >= 6 and not _is_innocent(value) and not re.match(r" [A-Za-z]", after)
        return is_secret(meant, value)
    is_jumble = len(value) >= 12 and _is_jumble(value)
    if _is_code(value, after) or (not is_jumble and (is_name or value.isdigit()) and _NEXT_WORD.match(after)):
        return False
    if meant is Key.PASSWORD and is_name and not is_jumble and not _LOWER.match(value):
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
    """Whether capitals stand where no word begins: `wJalrXUtnFEMI`."""
    changes = sum(a.islower() != b.islower() for a, b in pairwise(value) if a.isalpha() and b.isalpha())
    return len(value) >= 16 and changes * 3 >= len(value)


def _is_jumble(value: str) -> bool:
    """Whether what capitals cut a name into are no words: `QGPegaKZDFYMVVf`."""
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", value)
    odd = sum(
        len(word) == 1 or not re.search(r"(?i)[aeiouy]", word) or re.fullmatch(r"[A-Z]{7,}", word) is not None
        for word in words
    )
    is_odd = odd >= 2 and odd * 2 >= len(words)
    return len(value) >= 10 and value != value.upper() and (is_odd or 4 <= len(words) > sum(map(len, words)) / 3)


def _is_type_name(value: str) -> bool:
    """Whether a value reads as the name of a type: `PKCS7PrivateKeyTypes`."""
    words = re.findall(r"(?:[A-Z]+(?![a-z])|[A-Z][a-z]+)\d?", value)
    return len(words) >= 2 and "".join(words) == value and len(value) >= 3.5 * len(words) and not _is_jumble(value)


def _is_call(value: str) -> bool:
    """Whether a value begins as a call or an index does: `b64encode(`, `options[`."""
    called = _CALLED.match(value) if "(" in value or "[" in value else None
    if called is None or re.search(r"[a-z_]{2}", called[0]) is None:
        return False
    digits = sum(character.isdigit() for character in called[0])
    return digits <= 3 or digits * 4 <= len(called[0])


def _is_resource(value: str) -> bool:
    """Whether a value is a path of names: `projects/my-project/locations/us-east1/keyRings/1`."""
    parts = value.strip("/").split("/")
    return all(re.fullmatch(r"[A-Za-z]++(?:[_.-][A-Za-z]++)*+-?\d{0,4}|\d{1,6}|\*", part) for part in parts)


_SENTENCE = """the and for you your are not can with must should will from this that has have been was enter please when
    new old password passphrase invalid more"""
_GRAMMAR = frozenset(_SENTENCE.split())


def _is_passphrase(meant: Key, value: str) -> bool:
    """Words with blanks are a label, unless there are digits and signs inside them, or they make no sentence."""
    if meant is not Key.PASSWORD:
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
