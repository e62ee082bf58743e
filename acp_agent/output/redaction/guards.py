"""What a match must be beside its form before it counts as a secret."""

import base64
import binascii
import re
from enum import StrEnum
from typing import assert_never


class Guard(StrEnum):
    """What is asked of a secret.

    RANDOM     letters and digits mixed as chance mixes them
    USERINFO   base64 of `user:password`, in whatever character set (RFC 7617)
    PEM        base64 of a private key
    PASSWORD   neither a placeholder nor a variable
    """

    RANDOM = "random"
    USERINFO = "userinfo"
    PEM = "pem"
    PASSWORD = "password"  # noqa: S105 - a name


_STAND_IN = re.compile(
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
_TEMPLATE = re.compile(
    r"\$\{[^}\s]*\}?|\$\([a-z][^)]*\)?\Z|\{\{.*\}\}|<%|%\([a-z_]+\)|#\{|\{[A-Za-z_][\w.]*\}|\[REDACTED"
    r"|\{[a-z_][a-z_.]{3,}(?:![rsa])?\Z|\{\.[A-Za-z]|<[A-Za-z_ -]*>|<(?:span|code|em|b|a|p)\Z|&(?:\#x3C|lt);"
    r"|%\([A-Za-z_]+\)[sdr]|%[sdr](?:[%:/,-]|\Z)"
    r"|\A\$[A-Za-z_][\w:.]*\Z|\A%[A-Za-z_]*%?\Z"
)


def allows(guard: Guard, value: bytes) -> bool:
    """Whether a value passes."""
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
    """Whether a value only stands for one: a placeholder, a variable, a template."""
    return _STAND_IN.match(value) is not None or _TEMPLATE.search(value) is not None


_WORDY = re.compile(  # words, versions and numbers between signs
    r"(?:(?:[A-Za-z]{2,}\d{0,2}|v?\d{1,4})(?=[-_./:@]|\Z))(?:[-_./:@]++(?:(?:[A-Za-z]+\d{0,2}|v?\d{1,4})(?=[-_./:@]|\Z))?)*+"
)


def is_random(value: str) -> bool:
    """Whether letters and digits, 12 at least, are mixed as no name mixes them."""
    if len(value) < 12 or stands_in(value):
        return False
    digits = sum(character.isdigit() for character in value)
    letters = sum(character.isalpha() for character in value)
    return digits > 0 and letters > 0 and _WORDY.fullmatch(value) is None and not _is_title(value)


def _is_title(value: str) -> bool:
    """Whether a value is a name of many words, such as a test has: `test_draft202012_is_chosen`."""
    parts = re.split(r"[-_./:]+", value)
    words = [part for part in parts if re.fullmatch(r"[A-Za-z][a-z]+(?:[A-Z][a-z]+)*", part)]
    return len(words) >= 3 and sum(map(len, words)) * 2 > len(value)


def _is_userinfo(value: bytes) -> bool:
    plain = _decoded(value)
    user, colon, _ = plain.partition(b":")
    if not colon or re.fullmatch(rb"[\x20-\x7e]*", user) is None:
        return False
    return _is_text(plain) or (bool(user) and is_random(value.decode("latin-1")))


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _decoded(value: bytes) -> bytes:
    """What base64 holds, as far as it goes; nothing when it is none."""
    value = value.rstrip(b"=")
    value = value[: len(value) - (len(value) % 4 == 1)]
    try:
        return base64.b64decode(value + b"=" * (-len(value) % 4), validate=True)
    except binascii.Error:
        return b""
