"""How much of the independent test set is caught, and how much of what only looks like it is left alone.

`pytest -s` shows the figures.
"""

import base64
import json
from collections import Counter
from collections.abc import Sequence
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.output.redaction.redactor import Redactor
from acp_agent.output.redaction.rules import KnownSecrets
from tests.rows import each_row
from tests.sizes import sized
from tests.unit.output.redaction.corpus import Case, Shape, cases, survivors
from tests.unit.output.redaction.corpus_files import carried
from tests.unit.output.redaction.corpus_lookalikes import lookalikes
from tests.unit.output.redaction.corpus_tokens import tokens

SECRETS = tokens() + carried()
CASES = cases(SECRETS)
LOOKALIKES = lookalikes()
CAUGHT = 0.985  # of secrets in contexts, at least
TOUCHED = 0.015  # of look-alikes, at most


@pytest.fixture(scope="module")
def redactor() -> Redactor:
    return Redactor()


def leaks(pairs: Sequence[tuple[Case, str]]) -> list[str]:
    """What is left of the secrets in (case, redacted text) pairs, a line each."""
    found = [(case, text, case.leaked_in(text)) for case, text in pairs]
    return [f"{case.type} in {case.context}: {leak!r} in {text[:300]!r}" for case, text, leak in found if leak]


def summary(title: str, pairs: Sequence[tuple[Case, str]]) -> None:
    """Print how many were caught, and which types and contexts leaked how often."""
    leaked = [case for case, text in pairs if case.leaked_in(text)]
    share = 1 - len(leaked) / len(pairs)
    print(f"\n{title}: {len(pairs) - len(leaked)} of {len(pairs)} caught ({share:.2%})")
    for name, counted in (
        ("types", Counter(case.type for case in leaked)),
        ("contexts", Counter(case.context for case in leaked)),
    ):
        if counted:
            print(f"  leaking {name}: " + ", ".join(f"{key} {count}" for key, count in counted.most_common()))


def test_the_set_is_as_large_as_it_has_to_be():
    assert len(SECRETS) >= 150
    assert len({secret.type for secret in SECRETS}) >= 60
    contexts = Counter(case.type for case in CASES)
    assert min(contexts.values()) >= 6
    assert len({text for _, text in LOOKALIKES}) == len(LOOKALIKES) >= 150


def test_every_case_leaks_before_it_is_redacted():
    assert [case for case in CASES if not case.leaked_in(case.text)] == []


def test_at_least_98_5_percent_of_the_secrets_are_caught_in_their_contexts(redactor):
    pairs = [(case, redactor.redact(case.text).text) for case in CASES]
    summary("secrets x contexts", pairs)
    found = leaks(pairs)
    assert len(found) <= (1 - CAUGHT) * len(CASES), "\n".join(found)


def test_at_most_1_5_percent_of_the_lookalikes_are_touched(redactor):
    touched = [(kind, text, redactor.redact(text).text) for kind, text in LOOKALIKES]
    changed = [f"{kind}: {text[:200]!r} -> {after[:200]!r}" for kind, text, after in touched if text != after]
    print(f"\nlook-alikes: {len(changed)} of {len(LOOKALIKES)} touched ({len(changed) / len(LOOKALIKES):.2%})")
    print("\n".join(changed))
    assert len(changed) <= TOUCHED * len(LOOKALIKES), "\n".join(changed)


def test_what_was_redacted_stays_as_it_is_when_redacted_again(redactor):
    once = [redactor.redact(case.text).text for case in CASES]
    again = [redactor.redact(text).text for text in once]
    assert [(a, b) for a, b in zip(once, again, strict=True) if a != b] == []


def test_every_finding_is_counted_under_a_category(redactor):
    for case in CASES:
        redacted = redactor.redact(case.text)
        assert (redacted.text != case.text) == bool(redacted.found), case
        assert all(count > 0 for count in redacted.found.values())


@pytest.mark.parametrize(("size", "every"), [(1, 7), (7, 3), (64, 1)])
def test_a_secret_in_pieces_is_caught_where_the_whole_one_is(redactor, size, every):
    worse = []
    for case in CASES[:: every * sized(3, 1)]:
        if case.leaked_in(redactor.redact(case.text).text):
            continue
        stream = redactor.stream()
        pieces = [case.text[at : at + size] for at in range(0, len(case.text), size)]
        streamed = "".join(map(stream.feed, pieces)) + stream.finish()
        if leak := case.leaked_in(streamed):
            worse.append(f"{case.type} in {case.context}: {leak!r} in {streamed[:300]!r}")
    assert worse == []


@pytest.mark.parametrize("before", [4_000, 65_530])
def test_a_secret_in_the_middle_of_a_long_stream_is_caught_where_the_whole_one_is(redactor, before):
    filler = "all is well and nothing happens here\n" * (before // 37)
    worse = []
    for case in CASES[::11]:
        if case.leaked_in(redactor.redact(case.text).text):
            continue
        text = f"{filler}{case.text}\n{filler[:4000]}"
        stream = redactor.stream()
        streamed = "".join(stream.feed(text[at : at + 4096]) for at in range(0, len(text), 4096)) + stream.finish()
        if case.leaked_in(streamed):
            worse.append(f"{case.type} in {case.context}")
        assert streamed.startswith(filler[:1000])
        assert streamed.endswith(filler[3000:4000])
    assert worse == []


def test_the_string_leaves_of_a_json_value_are_redacted_like_text(redactor):
    """Only what is recognisable by itself: a leaf does not always know its key."""
    own = [case for secret in SECRETS if secret.shape is Shape.ITSELF for case in cases([secret])]
    pairs = [(case, json.dumps(redactor.json(json.loads(case.text)))) for case in own if case.context == "json"]
    summary("secrets in parsed JSON", pairs)
    found = leaks(pairs)
    assert len(found) <= (1 - CAUGHT) * len(pairs), "\n".join(found)


def test_the_string_leaves_of_a_json_value_that_is_harmless_stay(redactor):
    value = {f"line {n}": [text, {"n": n, "ok": True, "none": None}] for n, (_, text) in enumerate(LOOKALIKES)}
    after = redactor.json(value)
    changed = [key for key in value if after.get(key) != value[key]]
    assert len(changed) <= TOUCHED * len(value), changed


def test_a_redactor_that_is_off_changes_nothing():
    off = Redactor(enabled=False)
    assert [case for case in CASES if off.redact(case.text).text != case.text] == []


# ---------------------------------------------------------------------------------------- known values

CANARIES = [
    "canary-obviously-fake-0001",
    "Tr0ub4dor & 3?=",
    'quo"te\\back/slash+fake',
    "pässwörd-fälsch-0002",
    "line one fake\nline two fake",
    "12345678",
]


def forms(value: str) -> dict[str, str]:
    """How a value may come back."""
    data = value.encode()
    url_safe = base64.urlsafe_b64encode(data).decode()
    return {
        "plain": value,
        "base64": base64.b64encode(data).decode(),
        "base64 without padding": base64.b64encode(data).decode().rstrip("="),
        "base64 for URLs": url_safe,
        "base64 for URLs without padding": url_safe.rstrip("="),
        "URL-escaped": quote(value, safe=""),
        "URL-escaped, slashes left": quote(value),
        "URL-escaped as a form": quote_plus(value),
        "JSON-escaped": json.dumps(value)[1:-1],
        "JSON-escaped, letters left": json.dumps(value, ensure_ascii=False)[1:-1],
        "JSON in JSON": json.dumps(json.dumps(value)[1:-1])[1:-1],
    }


FORMS = [(value, form) for value in CANARIES for form in forms(value)]


def knowing(*values: str) -> Redactor:
    known = KnownSecrets()
    known.add(values)
    return Redactor(known)


@each_row("value, form", FORMS)
def test_a_known_value_survives_in_no_form(value, form):
    written = forms(value)[form]
    for text in (written, f"before {written} after", f'{{"x":"{written}"}}', f"\n+{written}\n", f"x={written}&y=1"):
        redacted = knowing(value).redact(text)
        assert written not in redacted.text
        assert not list(survivors(written, redacted.text)), redacted.text
        assert sum(redacted.found.values()) >= 1


@pytest.mark.parametrize("offset", [1, 2], ids=["one in", "two in"])
def test_a_known_value_inside_longer_base64_survives_at_no_offset(offset):
    """As in `Authorization: Basic`, where a user's name stands before it."""
    value = "canary-obviously-fake-0003"
    data = ("u" * (2 + offset) + ":" + value + ":end").encode()
    written = base64.b64encode(data).decode()
    after = knowing(value).redact(f"sent {written} along").text
    for start in range(len(after)):
        piece = after[start : start + len(written)]
        assert value not in _decoded(piece)
    assert written not in after


def _decoded(text: str) -> str:
    usable = text[: len(text) // 4 * 4]
    try:
        return base64.b64decode(usable, validate=True).decode("utf-8", "replace")
    except ValueError:
        return ""


@pytest.mark.parametrize("size", [1, 5, 4096])
def test_a_known_value_in_pieces_survives_in_no_form(size):
    for value in CANARIES:
        for written in forms(value).values():
            text = "filler " * 4_000 + written + " filler" * 2_000 if size == 4096 else f"some {written} text"
            stream = knowing(value).stream()
            after = "".join(stream.feed(text[at : at + size]) for at in range(0, len(text), size)) + stream.finish()
            assert written not in after


def test_known_values_survive_neither_as_a_key_nor_as_a_leaf_of_json():
    value = CANARIES[0]
    after = knowing(value).json({value: [value, {"a": f"x{value}y", value + "2": None}]})
    assert value not in json.dumps(after)


def test_known_values_of_less_than_8_characters_are_not_looked_for():
    assert knowing("abc1234").redact("the abc1234 of it").text == "the abc1234 of it"


def test_a_value_that_becomes_known_later_is_taken_out_from_then_on():
    known = KnownSecrets()
    redactor = Redactor(known)
    text = f"say {CANARIES[0]}"
    assert redactor.redact(text).text == text
    known.add([CANARIES[0]])
    assert CANARIES[0] not in redactor.redact(text).text


@given(
    value=st.text(st.characters(exclude_categories=["Cs"]), min_size=8, max_size=40).filter(lambda v: v.strip() == v),
    before=st.text(max_size=20),
    after=st.text(max_size=20),
)
def test_whatever_is_known_survives_in_no_form_between_anything(value, before, after):
    redactor = knowing(value)
    for written in set(forms(value).values()):
        if len(written) >= 8 and "REDACTED" not in written:
            assert written not in redactor.redact(f"{before} {written} {after}").text
