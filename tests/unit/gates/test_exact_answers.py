"""The exact answers of the functions from which gates make their verdicts, at their bounds and in rare cases."""

import json
import os
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from acp_agent.core.errors import Refused
from acp_agent.core.events import Containment
from acp_agent.core.session_options import SessionOptions
from acp_agent.core.types import (
    Access,
    Allow,
    Ask,
    CallOrigin,
    CommandSubject,
    Deny,
    PathSubject,
    ToolKind,
    ToolSpec,
    Verdict,
)
from acp_agent.gates import git_calls
from acp_agent.gates.adversarial import AdversarialGate
from acp_agent.gates.blocklist import BlocklistPolicy
from acp_agent.gates.blocklist import judge as verdict_on
from acp_agent.gates.gate import CallFacts, CommandFacts, Gate, Gates
from acp_agent.gates.git_calls import GitGuard
from acp_agent.gates.grants import Grant, GrantKind
from acp_agent.gates.grounding import Mentioned
from acp_agent.gates.paths.command_paths import MAX_WORDS, Folders, _attached, path_words, unexpanded
from acp_agent.gates.paths.links import UnseenWorkspace, link_targets, may_make_links, without_made
from acp_agent.gates.paths.unnamed_paths import _opens, name_list, spliced
from acp_agent.gates.paths.written_paths import Written, written
from acp_agent.gates.pins import _excerpt
from acp_agent.gates.policy import Policy, PolicyGate
from acp_agent.gates.protected import ProtectedGate
from acp_agent.gates.question import MAX_TITLE, clipped
from acp_agent.gates.rules.patterns import Call
from acp_agent.gates.rules.permission_rules import Action, judge, rule_action
from acp_agent.gates.rules.policy_rules import Effect, PolicyRule, Target, TrustLevel, _path
from acp_agent.gates.shell import reading as shell_reading
from acp_agent.gates.shell.command import CUT, MAX_BYTES, TOO_DEEP, Command, Opaque, Plain, ShellText, survey
from acp_agent.gates.shell.danger import destructive, shell_texts
from acp_agent.gates.shell.grammar import grammar_of
from acp_agent.gates.shell.guesses import Guesses
from acp_agent.gates.shell.options import Peeled, ShellCall, Wrapper, peel, shell_call, tables
from acp_agent.gates.shell.programs import denials, only_reads, prefix
from acp_agent.gates.shell.reading import loose_segments, spellings
from acp_agent.gates.shell.syntax import MAX_PIPES, Parsed, Parses
from acp_agent.gates.shell.words import MAX_BRACES, ansi_c, expand_braces
from acp_agent.gates.utility import TurnCalls
from acp_agent.gates.verify.firewall import Firewall, _handles
from acp_agent.gates.verify.folder_readers import reading
from acp_agent.gates.verify.verifiers import Destructive, Verifier, VerifierGate
from acp_agent.regex import LinearRegex
from acp_agent.workspace.command_files import Look
from acp_agent.workspace.git.changes import GitChanges
from acp_agent.workspace.protected_paths import ProtectedPaths, Protection
from tests.unit.gates.chain import SPECS, Chain, call, rules

pytestmark = pytest.mark.anyio


def called(text: str) -> Command:
    return Command(tuple(text.split()))


def test_unclear_options_of_shells_and_wrappers_are_named():
    letters = "".join(sorted(tables().shell_letters | set("c")))
    assert shell_call(("--odd", "x")) == ShellCall(unclear="the option --odd is not known")
    for last in ("o", "O"):
        assert shell_call((f"-{letters}{last}", "a", "x", "y")).texts == ("x",), (
            "all letters are known, one takes a value"
        )
    wrapper = Wrapper(flags=frozenset(("-0",)), values=frozenset(("-n", "--at", "--at-most")), text=frozenset(("-c",)))
    for args, peeled in (
        (("-n",), Peeled(unclear="the option -n lacks its value")),
        (("--odd", "x"), Peeled(unclear="the option --odd is not known")),
        (("--at=1", "ls"), Peeled(("ls",))),
        (("--at-m=1", "ls"), Peeled(("ls",))),
        (("--a=1", "ls"), Peeled(unclear="the option --a=1 is not known")),
        (("-0n", "5", "ls"), Peeled(("ls",))),
        (("-0n5", "ls"), Peeled(("ls",))),
        (("-0c", "evil", "ls"), Peeled(("ls",), texts=("evil",))),
        (("-0cevil", "ls"), Peeled(("ls",), texts=("evil",))),
    ):
        assert peel(wrapper, args) == peeled, args


def test_the_folder_behind_a_group_a_subshell_and_a_step_back():
    for text, possible in (
        ("{ cd a; }; ls", ("", "a")),
        ("cd a && { cd b; } && ls", ("a/b",)),
        ("( cd a ); ls", ("",)),
        ("cd -; ls", ("", "~")),
        ("cd a && cd - && ls", ("",)),
        ("( cd a ) && { ls; } || ls", ("",)),
        ("cd a || cd b && cd -; ls", ("", "a", "b", "a/b")),
        ("true || cd a && cd -; ls", ("", "a", "~")),
    ):
        assert CommandFacts(text).steps[-1].folders.possible == possible, text


def test_only_a_bare_change_into_a_folder_that_is_there_surely_works():
    for text, possible in (
        ("cd a; ls", ("a",)),
        ("cd a > x; ls", ("", "a")),
        ("x=1 cd a; ls", ("", "a")),
        ("cd a b; ls", ("", "a")),
        ("cd -P a; ls", ("", "a")),
    ):
        assert CommandFacts(text, is_folder=lambda _: True).steps[-1].folders.possible == possible, text


def test_only_finders_make_other_paths_of_the_names_that_they_find():
    for text, word in (
        ("find . -exec cat ../{} +", "../{}"),
        ("fd -x cat ../{}", "../{}"),
        ("xargs -I {} cat ../{}", ""),
    ):
        assert spliced(survey(text).commands[0]) == word, text


def test_what_a_wrapper_with_an_unknown_option_runs_is_guessed_only_to_look_for_danger():
    analysis = ShellText("nice --odd rm a").analysis
    assert isinstance(analysis, Plain)
    assert analysis.commands[0].runs == ()
    assert [each.argv for each in survey("nice --odd rm a").commands[0].runs] == [("rm", "a"), ("a",)]


def test_texts_that_programs_may_run_are_looked_at_only_for_danger():
    for text in (
        "sed 's/a/rm x/e'",
        "git config alias.x '!rm x'",
        "echo 'rm x' | at now",
        "psql -c '\\! rm x'",
        "vim -c '!rm x'",
    ):
        analysis = ShellText(text).analysis
        assert isinstance(analysis, Plain)
        assert analysis.commands[-1].runs == (), text
        assert any(each.argv[0] == "rm" for each in survey(text).walk()), text


def test_braces_and_arrows_part_the_words_of_a_damaged_text():
    for text, words in (
        ("a{b}c 'd'", [("a", "b", "c", "d")]),
        ("{ a; }<x>y", [("a",), ("x", "y")]),
        ("rm\\ -rf '$'x", [("rm", "-rf", "x")]),
    ):
        assert loose_segments(text) == words, text


def test_a_link_instead_of_a_folder_may_also_be_in_it_if_there_is_one_target():
    for text, meant in (
        ("ln -sn a b d", {"a": ("d/a",), "b": ("d/b",)}),
        ("ln -sn a d", {"a": ("a", "d/a")}),
        ("ln -s a d", {"a": ("d/a",)}),
        ("ln -s a e", {"a": ("a",)}),
        ("ln -s a", {"a": ("./a",)}),
        ("ln -sT a d", {"a": ("a",)}),
    ):
        assert link_targets(called(text), "d".__eq__) == meant, text


def test_where_the_value_of_bundled_options_begins():
    for program, word, values in (
        ("gcc", "-Isrc/x", ["src/x"]),
        ("tar", "-xCd", ["Cd", "d", ""]),
        ("patch", "-Rix", ["ix", "x"]),
        ("patch", "-iRx", ["Rx"]),
        ("patch", "-RNx", ["Nx", ""]),
    ):
        assert [*_attached(word, program)] == values, (program, word)


def test_a_file_that_a_program_uses_without_showing_it_is_handled():
    for text, word, handled in (
        ("rg -g !x", "!x", True),
        ("rg -g x", "x", False),
        ("cat -a !x", "!x", False),
        ("ssh -i k h", "k", True),
        ("cat -i k", "k", False),
        ("prog --env-file k", "k", True),
        ("prog --env-file=k", "k", True),
        ("prog --env-file=k x", "x", False),
    ):
        assert _handles(called(text), word) is handled, text


def test_a_damaged_text_with_a_substitution_is_refused():
    for text, refused in (("echo $(ls)", False), ("echo $(ls", True), ("echo `ls", True), ("echo 'ls", False)):
        assert isinstance(verdict_on(ShellText(text), BlocklistPolicy()), Deny) is refused, text


class Judging(Verifier):
    """Asks a question about each command."""

    def __init__(self, ask: Ask) -> None:
        self.ask = ask

    def command(self, command: Command, folders: Folders) -> Verdict:
        return self.ask


def test_the_questions_of_verifiers_are_one_that_is_as_strict_as_the_strictest():
    for one, two, firm, by_name, by_rule in (
        (Ask("a", firm=True), Ask("b"), True, False, False),
        (Ask("a"), Ask("b", firm=True), True, False, False),
        (Ask("a", by_name=True, by_rule=True), Ask("b", by_name=True, by_rule=True), False, True, True),
        (Ask("a", by_name=True), Ask("b", by_rule=True), False, False, False),
        (Ask("a", by_rule=True), Ask("b", by_name=True), False, False, False),
    ):
        verdict = VerifierGate([Judging(one), Judging(two)]).judge(CallFacts(call("bash", CommandSubject("ls"))))
        assert isinstance(verdict, Ask)
        assert (verdict.firm, verdict.by_name, verdict.by_rule) == (firm, by_name, by_rule), (one, two)


def test_an_option_for_a_list_of_files_may_be_abbreviated():
    for text, option in (
        ("tar --file=x a", ""),
        ("tar --files=x a", "--files-from"),
        ("tar --fi x", "--files-from"),
        ("du --fil=x", "--files0-from"),
        ("du -- x", ""),
        ("tar -cT x", "-T"),
        ("tar cT x", "-T"),
        ("tar x cT", ""),
    ):
        assert name_list(called(text)) == option, text


def test_a_command_that_destroys_a_disk_is_refused_with_advice():
    verdict = Destructive().command(called("mkfs.ext4 /dev/sda"), Folders(unexpanded))
    assert isinstance(verdict, Deny)
    assert verdict.advice == "Name single files inside the workspace, or tell the user what to run."


def test_a_command_that_names_more_paths_than_are_looked_at_may_change_a_protected_one():
    gate = ProtectedGate(
        paths=ProtectedPaths(),
        options=SessionOptions(),
        resolve=lambda path, access: path,
        resolve_command=lambda path, access: path,
        git=GitGuard(lambda folder, others=(): (), GitChanges(lambda path, access: path)),
    )
    for count, asks in ((MAX_WORDS, False), (MAX_WORDS + 1, True)):
        verdict = gate.judge(CallFacts(call("bash", CommandSubject("rm" + " a" * count))))
        assert isinstance(verdict, Ask) is asks, count


def test_what_an_approval_and_a_denial_of_a_command_cover():
    push = called("git push")
    assert (prefix(push), prefix(replace(push, unclear="odd"))) == (("git", "push"), ())
    for text, keys in (
        ("git", ["git"]),
        ("git push x", ["git", "git push"]),
        ("make", ["make"]),
        ("make all", ["make", "make all"]),
    ):
        assert [*denials(called(text))] == keys, text


def test_commands_that_destroy_a_disk_or_a_folder_are_named():
    for text, folder, named in (
        ("fdisk -l /dev/sda", "", ""),
        ("fdisk /dev/sda", "", "fdisk /dev/sda"),
        ("shred -l /dev/sda", "", "shred /dev/sda"),
        ("find -delete", "/", "find / -delete"),
        ("find -delete", "", ""),
    ):
        assert destructive(called(text), folder) == named, (text, folder)


def test_a_path_that_may_not_be_used_at_all_is_still_denied_by_its_own_name():
    def refuse(path: str, access: Access) -> str:
        raise Refused(f"{path} is outside")

    read = call("read", PathSubject("../secret", Access.READ))
    for pattern, action in (("../sec*", Action.DENY), ("other", None)):
        assert rule_action(read, rules(pattern, action=Action.DENY), refuse) is action, pattern


def test_a_call_has_its_options_as_rules_compare_them():
    found = Call.of(("rm", "-", "-x", "--", "-y", "-"))
    assert (found.options, found.letters, found.operands) == ((("-x", "--"), ("--", "-y")), {"x"}, ("-", "-y", "-"))
    found = Call.of(("rm", "one", "-x"))
    assert (found.options, found.operands) == ((("-x", ""),), ("one",))


def test_a_link_at_the_end_of_a_path_is_followed_unless_the_link_itself_is_moved(tmp_path: Path):
    root = os.path.realpath(tmp_path)
    (tmp_path / "link").symlink_to("target")
    link, target = f"{root}/link", f"{root}/target"
    assert _path("link", root, os.path.realpath) == Target((target, "target"), (target, "target", "link", link), ())
    moved = (link, "link")
    assert _path("link", root, os.path.realpath, entry=True) == Target(moved, moved, (*moved, link))


def test_programs_that_pack_folders_follow_links():
    for text, folders, follows in (
        ("zip -r x.zip a", ("x.zip", "a"), True),
        ("7z a x.7z b", ("x.7z", "b"), True),
        ("cpio -o", (".",), True),
        ("tar -cf x.tar a", ("a",), False),
        ("tar -chf x.tar a", ("a",), True),
        ("tar -c -f x.tar --files-from=list a", ("x.tar", "a", "."), False),
    ):
        read = reading(called(text))
        assert read is not None
        assert (read.folders, read.look) == (folders, Look(follows=follows)), text


def test_a_copy_writes_to_its_destination_and_below_it():
    for text, words in (
        ("install --odd -m 755 a b", ("b", "b/a")),
        ("cp --odd -m 755 a b", ("b", "b/755", "b/a")),
        ("cp -S .x a b", ("b", "b/a")),
    ):
        assert [*written(called(text))] == [Written(word) for word in words], text


def test_files_that_an_option_leaves_out_are_not_written():
    for text, words in (
        ("prog --exclude a b", ("b",)),
        ("prog -x a b", ("b",)),
        ("prog -y a b", ("a", "b")),
        ("cat --output=x a", ("x",)),
        ("cat --put=x --output a", ()),
    ):
        assert [each.word for each in written(called(text))] == [*words], text


def test_the_words_that_were_mentioned_last_are_remembered():
    words = Mentioned(most_words=2)
    for word in ("first_word", "second_word", "first_word", "third_word"):
        words.learn(word)
    assert [words.has_identifier(f"{each}_word") for each in ("first", "second", "third")] == [True, False, True]


def test_a_text_with_as_many_pipes_as_are_read_is_read():
    for more, read in ((0, Parsed), (1, str)):
        text = "x='" + "|" * (MAX_PIPES + more) + "'"
        assert isinstance(Parses(5.0).parse(text, MAX_BYTES), read), more


def test_no_variable_is_followed_unless_some_are_known():
    guesses = Guesses()
    guesses.learn("x", ["a"])
    assert guesses.known == {}
    guesses.known["y"] = ("b",)
    guesses.learn("x", ["a"])
    assert guesses.known == {"y": ("b",), "x": ("a",)}


def test_what_a_shell_reads_from_a_pipe_is_run_and_another_script_is_not_what_is_in_the_pipe():
    for text, runs in (("echo evil | . /dev/stdin", True), ("echo evil | . ./other", False)):
        assert any(each.name == "evil" for each in survey(text).walk()) is runs, text


def test_a_command_in_as_many_folders_as_are_followed_is_judged(monkeypatch):
    monkeypatch.setattr(git_calls, "MAX_FOLDERS", 1)
    guard = GitGuard(lambda folder, others=(): (), GitChanges(lambda path, access: path))
    assert guard.entering(("a",)) == ()
    assert guard.entering(("a", "b")) == (git_calls._TOO_MANY,)
    for folders, dangers in ((("a",), []), (("a", "b"), [git_calls._TOO_MANY]), (None, [git_calls._NOWHERE])):
        assert [*guard._of(git_calls.PlacedCall(git_calls.GitCall("status"), folders))] == dangers, folders


def test_git_searches_its_folder_only_and_shows_changes_of_the_whole_repository():
    for text, whole in (("git grep x", False), ("git diff", True)):
        read = reading(called(text))
        assert read is not None
        assert read.look.whole is whole, text


def test_no_empty_word_and_none_longer_than_paths_can_be_is_a_path():
    assert [*path_words(Command(("cat", "", "a", "b\0c", "b\nc")))] == ["a"]
    assert [len(word) for word in path_words(Command(("cat", "b" * 4096, "c" * 4097)))] == [4096]


def test_stars_in_quotes_are_no_pattern():
    for text, patterns in (
        ("cat *.py", {"*.py"}),
        ('cat "*.py"', set()),
        ("cat $x*", {"$x*"}),
    ):
        assert survey(text).commands[0].patterns == patterns, text


def test_no_text_is_parsed_once_the_time_is_over():
    assert Parses(0.0).parse("ls", MAX_BYTES) == "takes too long to parse"


def test_a_text_that_cannot_be_read_comes_with_advice():
    verdict = verdict_on(ShellText("ls; " * 4000), BlocklistPolicy())
    assert isinstance(verdict, Deny)
    assert verdict.advice == "Write it out plainly."


def test_only_what_reads_its_input_sets_a_variable_to_it():
    for text, words in (("x=a; echo b; prog x; $x", ["a"]), ("x=a; echo b; read x; $x", ["b", "a"])):
        found = [command.argv for command in survey(text).walk()]
        assert [word for word in words if (word,) in found] == words
        assert (("b",) in found) is ("b" in words), text


def test_a_redirection_alone_stands_in_its_scope():
    for text, scopes in (("( > x ) && > y", [("(1",), ()]), ("if true; then > z; fi", [("?1",), ("?1",)])):
        assert [command.scopes for command in survey(text).commands] == scopes, text


def test_braces_are_expanded_as_long_as_there_is_room_for_more_words():
    for count in (MAX_BRACES, MAX_BRACES + 2):
        expanded = expand_braces("{" + ",".join(["x"] * count) + "}{1,2}")
        assert expanded == [*["x1", "x2"] * (MAX_BRACES // 2), CUT], count
    assert expand_braces("{a,b}{1..9}" * 9)[:2] == ["a1" * 9, "a1" * 8 + "a2"]


def test_a_wrapper_is_allowed_with_what_it_starts():
    for patterns, text, allowed in (
        (("uv run *", "make *"), "uv run make x", True),
        (("uv run *",), "uv run make x", False),
        (("make *",), "uv run make x", False),
        (("printf *", "xargs *"), "printf a | xargs echo", True),
        (("printf *", "xargs *"), "printf a | xargs make", False),
    ):
        found = judge(ShellText(text), rules(*patterns), lambda _: None).action
        assert (found is Action.ALLOW) is allowed, (patterns, text)


def test_a_rule_that_asks_about_a_wrapper_and_what_it_starts_asks():
    for text in ("printf a | xargs echo", "timeout 5 make"):
        (*_, last) = text.split(" | ")
        found = judge(ShellText(text), rules(f"{last} *", last, action=Action.ASK), lambda _: None)
        assert found.action is Action.ASK, text


def test_folders_that_options_name_one_behind_the_other_are_in_each_other():
    for text, paths in (
        ("git -C a -C b add c", ["a", "a/b", "a/b/c"]),
        ("git -C a log --format=x", ["a"]),
        ("make -C a -f b x", ["a", "b", "a/b", "x", "a/x"]),
    ):
        assert [*path_words(called(text))] == paths, text


def test_a_command_that_is_allowed_for_ever_and_doubtful_is_not_asked_about_by_a_rule():
    for allowed, action in ((True, None), (None, Action.ASK)):
        found = judge(ShellText("git push > /x"), rules("git *", action=Action.ASK), lambda _, allowed=allowed: allowed)
        assert found.action is action, allowed


def test_what_is_unpacked_may_bring_hooks_of_git_wherever_a_repository_may_be():
    for text, planted in (
        ("tar -xf a.tar", ".git/hooks"),
        ("tar -C /x -xf a.tar", "/x/.git/hooks"),
        ("tar -C ../x -xf a.tar", "../x/.git/hooks"),
        ("tar -C below -xf a.tar", ""),
    ):
        found = [each.word for each in written(called(text)) if each.word.endswith("hooks")]
        assert found == ([planted] if planted else []), text


def test_a_text_whose_analysis_goes_too_deep_is_opaque(monkeypatch):
    def analyse(text: str, parses: Parses) -> Plain:
        raise RecursionError

    monkeypatch.setattr(shell_reading, "analyse", analyse)
    assert ShellText("ls | cat").analysis == Opaque(TOO_DEEP)


class Asking(Gate):
    """A gate with one verdict."""

    def __init__(self, verdict: Verdict) -> None:
        self.verdict = verdict

    def judge(self, facts: CallFacts) -> Verdict:
        del facts
        return self.verdict


def test_the_questions_of_all_gates_are_added_to_a_call():
    one, two = Ask("one"), Ask("two")
    facts = CallFacts(call("read"))
    assert Gates((Asking(one), Asking(two))).asks(facts)
    assert facts.asks == [one, two]
    assert not Gates((Asking(one), Asking(Deny("no")))).asks(CallFacts(call("read")))


def test_a_tool_that_runs_commands_is_offered_only_where_commands_may_run():
    gate = PolicyGate(
        Policy((PolicyRule.parse("rule", Effect.DENY, "bash", compile_regex=LinearRegex),)),
        cwd="/",
        realpath=os.path.realpath,
        trust=lambda _: TrustLevel.TRUSTED,
    )
    spec = ToolSpec("mine", "", {}, ToolKind.EXECUTE, mutates=True)
    assert (gate.allows(spec), gate.allows(replace(spec, commands=True))) == (True, False)


def test_a_tool_that_acts_as_a_denied_one_is_denied_by_the_rule_of_that_one(tmp_path: Path):
    chain = Chain(str(tmp_path), str(tmp_path / "grants.toml"), rules("*.key", action=Action.DENY), tool="edit")
    file = PathSubject("a.key", Access.WRITE)
    for acts_as, subjects in ((("edit",), [file]), (("bash", "edit"), [CommandSubject("ls"), file])):
        invocation = replace(call("write", *subjects), spec=replace(SPECS["write"], acts_as=acts_as))
        settled = chain.permission.settle(CallFacts(invocation)).verdict
        assert isinstance(settled, Deny), acts_as
        assert "edit" in settled.rule


def test_a_sealed_file_comes_with_advice():
    verdict = Firewall(lambda path, access: path, lambda path: path).path(PathSubject(".ssh/id_rsa", Access.READ))
    assert isinstance(verdict, Deny)
    assert verdict.advice == "Do without it, or ask the user for what you need of it."


def test_a_call_of_a_custom_tool_is_known_by_its_name():
    own = call("bash")
    mine = replace(own, call=replace(own.call, name="mine"))
    assert (CallFacts(own).custom, CallFacts(mine).custom) == ("", "mine")


def test_an_archive_that_is_listed_and_unpacked_may_bring_links():
    for text, makes in (("tar -tf a.tar -x", True), ("tar -tf a.tar", False), ("tar xf a.tar", True)):
        assert may_make_links(called(text), lambda _: False) is makes, text


async def test_a_call_that_the_second_model_does_not_judge_in_time_is_not_run():
    async def late(_: object) -> str:
        raise TimeoutError

    facts = CallFacts(call("read"))
    gate = AdversarialGate(("be careful",), late, str)
    told = "not run: the second model that checks calls ([tools.adversarial_policy]) gave no answer"
    assert await gate.examine(facts) == Deny(told, rule="no answer")
    assert facts.opinions == ["error: no answer in time"]


def test_only_env_splits_the_text_of_an_option_into_its_own_arguments():
    for text, found in (("flock /l -c 'evil a'", ["flock", "evil"]), ("env -S 'evil a' b", ["env", "env", "evil"])):
        assert [command.name for command in survey(text).walk()] == found, text


def test_rare_words_of_the_shell_keep_a_text_from_being_read():
    for text, unread in (
        ("set -- " + "a " * 64 + "; shift; $1", ""),
        ("set -- " + "a " * 65 + "; shift; $1", "shifts among more than 64 words"),
        ("declare -n x=y", "uses a name reference"),
        ("declare -an x=y", "uses a name reference"),
        ("declare --name x=y; declare x=-n", ""),
        ("echo " + "$((" * 300 + "1" + "))" * 300, "is nested too deep"),
    ):
        assert survey(text).unread == unread, text[:20]


def test_characters_that_nobody_sees_part_no_word():
    for text, meant in (
        ("r\x07m x", "rm x"),
        ("r\u200bm x", "rm x"),
        ("rm\u00a0x", "rm x"),
        ("rm\tx", "rm\tx"),
        ("rm\u2028x", "rm\nx"),
        ("r\\\nm x", "rm x"),
        ("\uff52m x", "rm x"),
    ):
        assert meant in spellings(text), text


def test_a_translated_string_is_no_other_word_than_a_string():
    assert [command.argv for command in survey('$"ls" x').commands] == [("ls", "x")]
    for text, meant in (
        ('s$"udo" x', 's"udo" x'),
        ('echo "5$" $"x"', 'echo "5" "x"'),
        ('echo \\$"x"', 'echo \\$"x"'),  # an escaped $
        ('echo \\\\$"x"', 'echo \\\\"x"'),
    ):
        assert meant in spellings(text), text


def test_letters_behind_a_control_escape_are_control_characters():
    assert ansi_c(r"\ca\cB\c[") == "\x01\x02\x1b"


def test_a_shell_that_a_pattern_names_a_script_for_is_unclear():
    analysis = ShellText("bash *").analysis
    assert isinstance(analysis, Plain)
    assert analysis.commands[0].unclear == "bash: what it runs is named by a pattern"


def test_a_pattern_may_name_a_file_that_is_written():
    for text, reads in (("uniq a", True), ("uniq a*", False), ("head a*", True)):
        assert only_reads(survey(text).commands[0]) is reads, text


def test_a_finder_with_an_unknown_option_may_read_everything():
    for text, ignores in (("fd --odd -x cat", False), ("fd -x cat", True)):
        read = reading(called(text))
        assert read is not None
        assert read.look.ignores is ignores, text


def test_only_commands_of_git_that_write_files_may_make_links():
    for text, makes in (("git update-index x", False), ("git stash", True), ("git status", False)):
        assert may_make_links(called(text), lambda _: False) is makes, text
    unseen = UnseenWorkspace()
    assert (unseen.is_file("x"), unseen.is_folder("x")) == (False, False)


def test_a_program_nobody_knows_opens_what_it_is_given():
    for program, opens in (("prog", True), ("./prog", True), ("rm", False)):
        (finder,) = survey(f"find -exec {program} {{}} +").commands
        assert any(map(_opens, finder.runs)) is opens, program


def test_commands_are_contained_unless_the_user_typed_them_or_let_them_out():
    ls = call("bash", CommandSubject("ls"))
    typed = replace(ls, call=replace(ls.call, origin=CallOrigin.USER))
    out = call("bash", CommandSubject("ls", unsandboxed=True))
    for invocation, contained, found in (
        (ls, True, Containment.CONTAINED),
        (typed, True, Containment.OUTSIDE),
        (out, True, Containment.OUTSIDE),
        (out, False, None),
        (ls, False, None),
        (call("bash", CommandSubject("ls", typed=True)), True, None),
        (call("read", PathSubject("a", Access.READ)), True, None),
    ):
        assert CallFacts(invocation, contained=contained).containment is found, invocation


def test_an_answer_about_one_project_may_hold_everywhere_unless_it_is_about_one_text():
    for project, kind, widens in (
        ("/p", GrantKind.PREFIX, True),
        ("/p", GrantKind.FOLDER, True),
        ("/p", GrantKind.PAYLOAD, False),
        ("", GrantKind.PREFIX, False),
    ):
        assert Grant("bash", kind, "key", allowed=True, project=project).widens is widens, (project, kind)


async def test_the_second_model_gets_the_policies_and_the_call_between_marks_that_cannot_be_guessed():
    asked = list[Any]()

    async def answer(request: object) -> str:
        asked.append(request)
        return "ALLOW"

    gate = AdversarialGate(("be  careful", "be kind"), answer, str)
    for _ in range(2):
        assert isinstance(await gate.examine(CallFacts(call("bash", CommandSubject("ls -a | wc")))), Allow)
    assert "1. be careful\n2. be kind" in asked[0].system
    marks = [re.fullmatch(r'<call id="(\w{8})">\n(.*)\n</call id="\1">', each.messages[0].text) for each in asked]
    first, second = (mark for mark in marks if mark is not None)
    assert first[1] != second[1]
    assert f'"{first[1]}"' in asked[0].system
    assert json.loads(first[2])["runs"] == "ls wc"


def test_what_is_said_of_a_text_that_cannot_be_read_is_the_first_reason():
    assert survey("a;" * 5000 + " (").unread == "has more than 1000 commands"
    assert survey("'" + "a;b;" * 3000).unread == "holds more than 4000 commands"


def test_as_many_texts_in_a_text_as_are_read_are_read(monkeypatch):
    monkeypatch.setattr(shell_reading, "MAX_READINGS", 2)
    for text, unread, names in (
        ("sh -c 'a'", "", ["sh", "a"]),
        ("sh -c 'a'; sh -c 'b'", "holds more than 2 texts and calls of functions", ["sh", "a", "sh"]),
    ):
        found = survey(text)
        assert (found.unread, [each.name for each in found.walk()]) == (unread, names)


def test_redirections_behind_more_than_a_command_are_proven():
    for text in ("{ a; } > x", "( a ) > x", "a | b > x", "a && b > x", "a && { b; } > x", "! a > x", "a; b > x"):
        assert isinstance(ShellText(text).analysis, Plain), text


def test_texts_in_code_may_be_run_where_it_starts_programs():
    for code, pipes, texts in (
        ("'a' | 'b'", True, ["a", "b"]),
        ("'a' | 'b'", False, []),
        ("'a' 'b'", True, []),
        ("os.system('a')", False, ["a"]),
    ):
        assert shell_texts(code, pipes=pipes) == texts, (code, pipes)


def test_a_link_that_is_moved_into_a_folder_is_a_link_there():
    for text, makes in (("mv a b", False), ("mv a link b", True), ("mv -t b a", False), ("mv -t b a link", True)):
        assert may_make_links(called(text), "a".__eq__) is makes, text


def test_a_verb_behind_an_operand_is_an_operand():
    git = grammar_of("git")
    assert git is not None
    assert git.parse(("reflog", "main", "show")).verbs == ("reflog",)
    assert git.parse(("reflog", "show", "main")).verbs == ("reflog", "show")


def test_git_may_be_in_any_folder_that_a_line_enters():
    def expand(pattern: str, folder: str) -> tuple[str, ...]:
        assert (pattern, folder) == ("s*", "")
        return ("src", "sub")

    for text, folders in (
        ("git -C s* log", ("s*", "src", "sub")),
        ("git -C 's*' log", ("s*",)),
        ("cd a && git -C b log", ("b", "a/b")),
        ("; ".join(f"cd {each}" for each in "abcdefgh") + "; git -C b log", None),
    ):
        (found,) = git_calls.git_calls(CommandFacts(text, expand))
        assert found.folders == folders, text


def test_one_skipped_call_is_no_calls():
    turn = TurnCalls()
    turn.skipped(call("read").call)
    assert turn.status(0.5, ()) == ("Utility gate: 1 call worth less than 0.5 skipped; never skipped: nothing",)


def test_a_text_as_long_as_a_title_may_be_is_shown_whole():
    assert clipped("x" * MAX_TITLE) == "x" * MAX_TITLE
    assert f"[…{MAX_TITLE + 1:,} characters in all…]" in clipped("x" * (MAX_TITLE + 1))


def test_an_excerpt_says_whether_text_was_left_out():
    for text, start, shown in (
        ("x" * 300, 0, "“" + "x" * 300 + "”"),
        ("x" * 301, 0, "“" + "x" * 300 + "…”"),
        ("x" * 301, 1, "“…" + "x" * 300 + "”"),
    ):
        assert _excerpt(text, start) == shown, (len(text), start)


def test_walls_hold_what_git_runs_so_only_commands_without_them_ask_about_it():
    danger = git_calls._NOWHERE
    gate = ProtectedGate(
        paths=ProtectedPaths(),
        options=SessionOptions(),
        resolve=lambda path, access: path,
        resolve_command=lambda path, access: path,
        git=SimpleNamespace(dangers=lambda _: (danger,)),  # type: ignore[arg-type]
    )
    for text, contained, asks in (("git status", False, True), ("git status", True, False), ("ls", False, False)):
        facts = CallFacts(call("bash", CommandSubject(text)), contained=contained)
        assert isinstance(gate.judge(facts), Ask | Deny) is asks, (text, contained)


def test_a_step_back_out_of_a_folder_that_the_line_makes_takes_it_away():
    for path, made, there, found in (
        ("a/../b", ["a"], [], "b"),
        ("a/../b", ["a"], ["a"], "a/../b"),
        ("a/../b", [], [], "a/../b"),
        ("c/../b", ["a"], [], "c/../b"),
    ):
        assert without_made(path, made, there.__contains__) == found, (path, made, there)


def test_an_operation_on_a_folder_is_judged_by_where_its_path_leads():
    hard, soft = Protection(hard=True, reason="hard"), Protection(hard=False, reason="soft")
    for of_path, of_target, below, found in (
        (None, hard, None, hard),
        (None, None, soft, soft),
        (None, None, hard, None),
        (soft, None, None, soft),
    ):
        gate: Any = ProtectedGate.__new__(ProtectedGate)
        gate._resolve = lambda *_: "/w/target"
        gate._find = lambda path, holding=False, known=(of_path, of_target, below): (
            known[2] if holding else known[path == "/w/target"]
        )
        assert gate._path("path", Access.WRITE, holding=True) is found, (of_path, of_target, below)


def test_a_file_that_may_not_be_read_may_be_written_anew_and_not_edited(tmp_path: Path):
    chain = Chain(str(tmp_path), str(tmp_path / "grants.toml"), rules("*.key", action=Action.DENY), tool="read")
    for tool, accesses, denied in (
        ("write", [Access.WRITE], False),
        ("edit", [Access.READ, Access.WRITE], True),
        ("read", [Access.READ], True),
    ):
        invocation = call(tool, *(PathSubject("a.key", each) for each in accesses))
        assert isinstance(chain.permission.settle(CallFacts(invocation)).verdict, Deny) is denied, tool
