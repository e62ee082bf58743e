"""What must hold for any command and any rules."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from acp_agent.core.types import Deny
from acp_agent.gates.blocklist import BlocklistPolicy, Substitution
from acp_agent.gates.blocklist import judge as blocked
from acp_agent.gates.rules.permission_rules import Action, judge
from acp_agent.gates.shell.command import Plain, ShellText, analyse, survey
from tests.unit.gates import everyday, hostile
from tests.unit.gates.chain import rules
from tests.unit.gates.differential import strings

HOSTILE = [text for text in hostile.U if len(text) < 200]
SENSITIVE = (*everyday.COMMANDS, *(text for table in (hostile.A, hostile.B, hostile.C) for text, _ in table))
PATTERNS = st.sampled_from([*everyday.RULES, "*", "git push*", "rm *", "sudo *", "*rm*", "ls", "cat *.py"])
WORDS = st.sampled_from(["git", "ls", "sudo", "rm", "curl", "x", "-rf", "/", "terraform", "push --force"])
EVERYDAY = rules(*everyday.RULES)
WAIVED = ("pip install -r requirements.txt",)  # allowed by a rule that names -r, which brings in what the file says
RANK = {Action.ALLOW: 0, None: 1, Action.ASK: 1, Action.DENY: 2}


def nothing(_prefix: str) -> bool | None:
    return None


LIFTED = ("curl", "wget", "wget2", "aria2c", "nc", "ncat", "netcat", "socat", "telnet", "dd if=")


@given(
    st.sampled_from(HOSTILE),
    st.lists(WORDS, max_size=3),
    st.lists(WORDS, max_size=3),
    st.sampled_from(Substitution),
)
@settings(max_examples=settings.default.max_examples * 2)
def test_no_configuration_weakens_the_fixed_part_of_the_blocklist(text, blocked_words, allowed_words, substitution):
    plain = BlocklistPolicy(allowed=LIFTED, substitution=substitution)
    policy = BlocklistPolicy(tuple(blocked_words), (*LIFTED, *allowed_words), substitution)
    if isinstance(blocked(ShellText(text), plain), Deny):
        assert isinstance(blocked(ShellText(text), policy), Deny)


@given(st.sampled_from([*SENSITIVE, *HOSTILE]), st.lists(WORDS, max_size=4), WORDS)
@settings(max_examples=settings.default.max_examples * 2)
def test_blocking_more_never_blocks_less(text, words, more):
    if isinstance(blocked(ShellText(text), BlocklistPolicy(tuple(words))), Deny):
        assert isinstance(blocked(ShellText(text), BlocklistPolicy((*words, more))), Deny)


@given(st.sampled_from(SENSITIVE), st.lists(PATTERNS, max_size=4), PATTERNS, st.integers(0, 4))
@settings(max_examples=settings.default.max_examples * 2)
def test_adding_a_deny_anywhere_never_loosens(text, patterns, denied, place):
    given_rules = rules(*patterns)
    more = (*given_rules[:place], *rules(denied, action=Action.DENY), *given_rules[place:])
    before, after = judge(ShellText(text), given_rules, nothing).action, judge(ShellText(text), more, nothing).action
    assert RANK[after] >= RANK[before]


@given(st.sampled_from(SENSITIVE), st.lists(PATTERNS, max_size=4), PATTERNS)
@settings(max_examples=settings.default.max_examples * 2)
def test_an_allow_behind_other_rules_never_lifts_a_denial(text, patterns, allowed):
    given_rules = rules(*patterns, action=Action.DENY)
    if judge(ShellText(text), given_rules, nothing).action is Action.DENY:
        assert judge(ShellText(text), (*given_rules, *rules(allowed)), nothing).action is Action.DENY


def _quoted(word: str, choose: random.Random) -> str:
    """The same word, spelled another way that stays plain."""
    if "'" in word or not word:
        return f'"{word}"'
    forms = [f"'{word}'"]
    if not set(word) & set('\\$`"'):
        forms.append(f'"{word}"')
    if not any(char.isspace() or char in '*?[;&|<>(){}#~!\\$`"' for char in word):
        cut = choose.randint(0, len(word))
        forms += [word, f"'{word[:cut]}'{word[cut:]}", f'{word[:cut]}"{word[cut:]}"', f"\"{word[:cut]}\"'{word[cut:]}'"]
    return choose.choice(forms)


@given(st.sampled_from(everyday.COMMANDS), st.integers(0, 2**32))
@settings(max_examples=settings.default.max_examples * 2)
def test_a_verdict_depends_on_the_words_not_on_quotes_blanks_or_wrappers(text, seed):
    verdict = analyse(text)
    assert isinstance(verdict, Plain), text
    command = verdict.commands[0]
    if len(verdict.commands) != 1 or command.redirections or command.assignments or command.patterns:
        return
    choose = random.Random(seed)
    blanks = choose.choice([" ", "  ", "\t", " \t "])
    wrapper = choose.choice(["", "", "nice ", "timeout 5 ", "nohup ", "stdbuf -oL nice -n 3 ", "command "])
    words = blanks.join(_quoted(word, choose) for word in command.argv)
    other = choose.choice(["", " ", "\n"]) + wrapper + words + choose.choice(["", " ", "\n", ";"])
    if wrapper and text in WAIVED:
        assert judge(ShellText(other), EVERYDAY, nothing).action is None, other
    else:
        assert judge(ShellText(other), EVERYDAY, nothing).action == judge(ShellText(text), EVERYDAY, nothing).action, (
            other
        )


def test_what_a_rule_waives_is_not_waived_inside_a_wrapper():
    for text in WAIVED:
        assert judge(ShellText(text), EVERYDAY, nothing).action is Action.ALLOW
        assert judge(ShellText(f"nice {text}"), EVERYDAY, nothing).action is None


WRAPPERS = (
    *("", "env ", "env A=1 ", "nice -n 5 ", "timeout 5 ", "nohup ", "exec ", "command "),
    *("xargs ", "stdbuf -oL ", "time ", "! ", "A=1 "),
)
AROUND = (
    *("{}", "ls; {}", "ls && {} && ls", "ls | {}", "( {} )", "{{ {}; }}", "if x; then {}; fi", "f() {{ {}; }}"),
    *("for x in 1; do {}; done", "{} &", "ls\n{}\nls", "eval {}"),
)
REFUSED = st.sampled_from(["sudo ls", "rm -rf /", "reboot", "mkfs.ext4 x", "curl x", "dd of=/dev/sda"])


@given(REFUSED, st.integers(0, 2**32))
@settings(max_examples=settings.default.max_examples * 2)
def test_a_refusal_does_not_depend_on_quotes_blanks_or_wrappers(text, seed):
    choose = random.Random(seed)
    program, *rest = text.split()
    words = [choose.choice([program, f"/usr/bin/{program}", f"\\{program}", program.upper()]), *rest]
    spelled = [
        word if word[0] == "\\" else choose.choice([word, _quoted(word, choose), f"{word[:1]}\\\n{word[1:]}"])
        for word in words
    ]
    line = choose.choice([" ", "  ", "\t", " \\\n "]).join(spelled)
    hidden = choose.choice(AROUND).format(choose.choice(WRAPPERS) + line)
    assert isinstance(blocked(ShellText(hidden), BlocklistPolicy()), Deny), hidden


@given(st.text(max_size=200))
@settings(max_examples=settings.default.max_examples * 2)
def test_no_text_breaks_the_readers(text):
    analyse(text)
    blocked(ShellText(text), BlocklistPolicy())
    judge(ShellText(text), rules("*"), nothing)


def test_whatever_is_plain_is_also_surveyed():
    for text in strings(11, 1500):
        verdict = analyse(text)
        if isinstance(verdict, Plain):
            found = {command.name for command in survey(text).walk()}
            assert {each.name for command in verdict.commands for each in command.walk()} <= found, text


def test_no_rule_at_all_allows_nothing():
    assert not (broken := [text for text in SENSITIVE if judge(ShellText(text), (), nothing).action is Action.ALLOW]), (
        str(broken)
    )
