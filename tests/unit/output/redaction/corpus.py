"""The independent test set of secret redaction: what a secret is here, where it stands, and when it has leaked.

Written blind, from the vendors' published formats and without a look at the rules, so that its figures mean something.
No file of it holds a string that looks alive: tokens grow at run time, from a seed, out of templates such as
`ghp_{a:36}`, with FAKE woven in where the alphabet has the letters.
"""

import json
import random
import re
import string
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto

WINDOW = 12
"""So many consecutive characters of a secret are a leak."""

_ALPHABETS = {
    "a": string.ascii_letters + string.digits,
    "L": string.ascii_letters,
    "l": string.ascii_lowercase + string.digits,
    "u": string.ascii_uppercase + string.digits,
    "d": string.digits,
    "h": "0123456789abcdef",
    "w": string.ascii_letters + string.digits + "-_",
    "b": string.ascii_letters + string.digits + "+/",
    "q": string.ascii_uppercase + "234567",
    "z": "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L",
    "p": string.ascii_letters + string.digits * 2 + "!#%*+,-.=?^_~",
    "c": "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz",
    "U": "",
}
_FIELD = re.compile(r"\{([a-zA-Z]):(\d+)\}")


def filled(template: str, seed: str) -> str:
    """A template's `{alphabet:length}` fields filled, the same for the same seed. `{U:1}` is a UUID."""
    source = random.Random(f"{template} {seed}")

    def field(match: "re.Match[str]") -> str:
        alphabet, length = _ALPHABETS[match[1]], int(match[2])
        if not alphabet:
            return str(uuid.UUID(int=source.getrandbits(128), version=4))
        text = "".join(source.choices(alphabet, k=length))
        word = next((w for w in ("FAKE", "fake", "facade") if set(w) <= set(alphabet)), "")
        at = length // 3
        return text[:at] + word + text[at + len(word) :] if word and length >= 16 else text

    return _FIELD.sub(field, template)


class Shape(Enum):
    """What makes a secret recognisable."""

    ITSELF = auto()  # its own form: a vendor's prefix, a URL with a password in it
    NAMED = auto()  # the name beside it
    FILE = auto()  # the lines it stands in


@dataclass(frozen=True, slots=True)
class Secret:
    """A secret and the text that carries it.

    text    what is put into a context
    parts   what must not survive; several for a key of many lines
    words   the name of a NAMED one
    path    the file of a FILE one
    """

    type: str
    shape: Shape
    text: str
    parts: tuple[str, ...]
    words: tuple[str, ...] = ()
    path: str = ""


@dataclass(frozen=True, slots=True)
class Case:
    """A secret in one context."""

    type: str
    context: str
    text: str
    parts: tuple[str, ...]

    def leaked_in(self, text: str) -> str:
        """What of the secret is still in a text; empty when nothing is."""
        return next((found for part in self.parts for found in survivors(part, text)), "")


def survivors(secret: str, text: str) -> Iterator[str]:
    """The windows of a secret that stand in a text, as the secret is or as JSON escapes it once or twice."""
    once = json.dumps(secret)[1:-1]
    for form in {secret, once, json.dumps(once)[1:-1]}:
        for start in range(max(1, len(form) - WINDOW + 1)):
            if form[start : start + WINDOW] in text:
                yield form[start : start + WINDOW]


def itself(kind: str, template: str, seed: str = "1") -> Secret:
    """A token that is recognisable by its form."""
    token = filled(template, seed)
    return Secret(kind, Shape.ITSELF, token, (token,))


def named(kind: str, name: str, template: str, seed: str = "1") -> Secret:
    """A value that only its name, words apart, gives away."""
    value = filled(template, seed)
    return Secret(kind, Shape.NAMED, value, (value,), tuple(name.split()))


def within(kind: str, carrier: str, template: str, path: str = "", seed: str = "1") -> Secret:
    """A value in the place of `<>` of a carrier: of a line of the file `path`, or of what is recognisable itself."""
    value = filled(template, seed + carrier)
    shape = Shape.FILE if path else Shape.ITSELF
    return Secret(kind, shape, filled(carrier, seed).replace("<>", value), (value,), path=path)


# ------------------------------------------------------------------------------------------ contexts

Writer = Callable[[Secret], str]


def _quoted(text: str) -> str:
    return text if re.fullmatch(r"[A-Za-z0-9_./:@+,=~-]+", text) else "'" + text.replace("'", "'\\''") + "'"


def _snake(words: Sequence[str]) -> str:
    return "_".join(words)


def _camel(words: Sequence[str]) -> str:
    return words[0] + "".join(word.capitalize() for word in words[1:])


def _kebab(words: Sequence[str]) -> str:
    return "-".join(words)


def _upper(words: Sequence[str]) -> str:
    return "_".join(words).upper()


def _inside(document: object) -> str:
    return json.dumps({"status": 200, "body": json.dumps(document)})


_ITSELF: dict[str, tuple[Writer, ...]] = {
    "log": (
        lambda s: f"2026-03-04T05:06:07.123Z INFO  worker-3 picked up {s.text} (attempt 2 of 5)",
        lambda s: f"[12:01:55] debug: upstream answered '{s.text}' in 35 ms",
        lambda s: f"Mar  4 05:06:07 host app[812]: retrying with {s.text}, 3 left",
        lambda s: f"> the one in use is {s.text}.",
    ),
    "env": (
        lambda s: f"DEPLOY_TARGET={_quoted(s.text)}",
        lambda s: f'export CI_VALUE="{s.text}"',
        lambda s: f"      - CI_VALUE={s.text}",
        lambda s: f"$env:CI_VALUE = '{s.text}'",
    ),
    "json": (
        lambda s: json.dumps({"id": 7, "value": s.text, "ok": True}),
        lambda s: json.dumps({"items": [s.text], "next": None}, indent=2),
        lambda s: json.dumps({"current": s.text}, separators=(",", ":")),
    ),
    "escaped json": (
        lambda s: _inside({"value": s.text, "n": 1}),
        lambda s: _inside([{"name": "current", "value": s.text}]),
    ),
    "option": (
        lambda s: f"$ deployctl push --with {_quoted(s.text)} --fast",
        lambda s: f"+ docker run -e CI_VALUE={_quoted(s.text)} alpine:3.20 true",
        lambda s: f"curl -sS -H 'X-Thing: {s.text}' https://api.example.com/v1/me",
        lambda s: f"tool --set=remote.value={_quoted(s.text)}",
    ),
    "diff": (
        lambda s: f'@@ -3,2 +3,2 @@\n-    client = Client()\n+    client = Client("{s.text}")',
        lambda s: f"-VALUE={s.text}\n+VALUE=",
        lambda s: f"+const current = '{s.text}';",
    ),
    "trace": (
        lambda s: (
            f"Traceback (most recent call last):\n  File \"main.py\", line 12, in <module>\n    connect('{s.text}')"
        ),
        lambda s: f"deploy:\n  - name: prod\n    value: {_quoted(s.text)}\n",
        lambda s: f"panic: cannot use {s.text}\n\ngoroutine 1 [running]:\nmain.main()",
        lambda s: f'ValueError: bad value: "{s.text}"',
    ),
}

_NAMED: dict[str, tuple[Writer, ...]] = {
    "log": (
        lambda s: f'level=info msg="connecting" {_snake(s.words)}={_quoted(s.text)} host=db1',
        lambda s: f"2026-03-04 05:06:07 DEBUG {_kebab(s.words)}: {s.text}",
        lambda s: f"[config] {_upper(s.words)} = {s.text}",
        lambda s: f"INFO {' '.join(s.words).capitalize()}: {s.text}",
    ),
    "env": (
        lambda s: f"{_upper(s.words)}={_quoted(s.text)}",
        lambda s: f'export {_upper(s.words)}="{s.text}"',
        lambda s: f"ENV {_upper(s.words)} {_quoted(s.text)}",
        lambda s: f"      - {_upper(s.words)}={s.text}",
    ),
    "json": (
        lambda s: json.dumps({"id": 7, _camel(s.words): s.text, "ok": True}),
        lambda s: json.dumps({_snake(s.words): s.text}, indent=2),
        lambda s: f"{{'{_snake(s.words)}': '{s.text}', 'port': 5432}}",
    ),
    "escaped json": (
        lambda s: _inside({_camel(s.words): s.text, "n": 1}),
        lambda s: _inside({"config": {_kebab(s.words): s.text}}),
    ),
    "option": (
        lambda s: f"$ deployctl push --{_kebab(s.words)} {_quoted(s.text)} --fast",
        lambda s: f"deployctl push --{_kebab(s.words)}={_quoted(s.text)} --fast",
        lambda s: f"java -D{'.'.join(s.words)}={_quoted(s.text)} -jar app.jar",
        lambda s: f"helm upgrade app . --set {_camel(s.words)}={_quoted(s.text)}",
    ),
    "diff": (
        lambda s: f'-{_snake(s.words)} = ""\n+{_snake(s.words)} = "{s.text}"',
        lambda s: f"+    const {_camel(s.words)} = '{s.text}';",
        lambda s: f'+    "{_upper(s.words)}": "{s.text}",',
    ),
    "yaml": (
        lambda s: f"app:\n  {_snake(s.words)}: {_quoted(s.text)}\n  port: 80",
        lambda s: f"spring.datasource.{_kebab(s.words)}={s.text}",
        lambda s: f"[remote]\n{_snake(s.words)} = {s.text}\nuser = app",
        lambda s: f'  File "main.py", line 12, in <module>\n    connect({_snake(s.words)}="{s.text}")',
    ),
}


def _each_line(prefix: Callable[[int], str]) -> Writer:
    return lambda s: "\n".join(prefix(n) + line for n, line in enumerate(s.text.splitlines(), 1))


_FILE: dict[str, tuple[Writer, ...]] = {
    "bare": (lambda s: f"$ cat {s.path}\n{s.text}\n$ ",),
    "grep": (lambda s: _each_line(lambda n: f"{s.path}:{n}:")(s),),
    "json": (lambda s: json.dumps({"path": s.path, "content": s.text + "\n"}),),
    "escaped json": (lambda s: _inside({"path": s.path, "content": s.text}),),
    "diff": (
        lambda s: f"--- /dev/null\n+++ b/{s.path}\n@@ -0,0 +1,9 @@\n" + _each_line(lambda n: "+")(s),
        lambda s: f"--- a/{s.path}\n+++ /dev/null\n@@ -1,9 +0,0 @@\n" + _each_line(lambda n: "-")(s),
    ),
    "numbered": (
        _each_line(lambda n: f"{n:6}\t"),
        lambda s: "data: |\n" + _each_line(lambda n: "    ")(s),
    ),
}

_CONTEXTS = {Shape.ITSELF: _ITSELF, Shape.NAMED: _NAMED, Shape.FILE: _FILE}


def cases(secrets: Sequence[Secret]) -> list[Case]:
    """Every secret in every context of its shape, the wordings of a context taking turns."""
    return [
        Case(secret.type, context, wordings[number % len(wordings)](secret), secret.parts)
        for number, secret in enumerate(secrets)
        for context, wordings in _CONTEXTS[secret.shape].items()
    ]
