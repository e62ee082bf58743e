"""Texts made to be expensive or deep are asked about or refused, by counting and not by the clock."""

import fnmatch
import re
import struct
import sys
from pathlib import Path
from types import FrameType

import pytest

import acp_agent.gates
from acp_agent.core.types import Deny
from acp_agent.gates.blocklist import BlocklistPolicy, judge
from acp_agent.gates.gate import CommandFacts
from acp_agent.gates.git_calls import git_calls
from acp_agent.gates.paths.command_paths import odd_words, path_words
from acp_agent.gates.paths.links import may_make_links, without_made
from acp_agent.gates.rules.permission_rules import allowance
from acp_agent.gates.shell.command import CUT, MAX_BYTES, Command, Opaque, ShellText, analyse, survey
from acp_agent.gates.shell.programs import runs_its_input
from acp_agent.gates.shell.syntax import Parses
from acp_agent.gates.shell.words import MAX_BRACES, MAX_VALUE, MAX_VALUES, ansi_c, expand_braces
from acp_agent.gates.verify.folder_readers import reading
from acp_agent.gates.verify.verifiers import Injection
from acp_agent.workspace.git.index import gitlinks
from acp_agent.workspace.git.settings import MAX_BYTES as MAX_SETTINGS
from acp_agent.workspace.git.settings import NotReadable, Repository, dangers, read_settings
from tests.sizes import sized


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("echo " + "${a:-" * 300 + "x" + "}" * 300, "is nested too deep"),
        ("ls " + ">a " * 5000, "more than 1000 redirections"),
        ("ls; " * 8000, "more than 1000 commands"),
        ("ls | " * 5000 + "ls", "more than 2000 pipes"),
        ("".join(f"$(a{number} " for number in range(5000)), "more than 4000 commands"),
        (f"for x in {' '.join(map(str, range(250)))}; do ls $x {'w ' * 10_000}; done", "more than 100,000 words"),
    ],
)
def test_they_are_refused_because_nobody_could_check_them(text: str, why: str) -> None:
    verdict = judge(ShellText(text), BlocklistPolicy())
    assert isinstance(verdict, Deny)
    assert why in verdict.reason
    assert isinstance(analyse(text), Opaque)


def test_nothing_is_proven_by_its_beginning() -> None:
    """The commands behind too many words were left out, and the others passed for all that run."""
    for text in ("ls; rm -rf x " + "{} " * 10_000, "ls " + ">{} " * 900 + "; rm x" + " >{}" * 900 + " {}" * 4000):
        assert isinstance(analyse(text), Opaque)


def test_what_just_fits_is_read() -> None:
    for text in ("ls " + ">a " * 1000, "ls; " * 999 + "ls"):
        assert survey(text).unread == "", text[:9]
    assert expand_braces("{a,b}" * 20)[MAX_BRACES - 1 :] == [f"{'a' * 10}{'b' * 10}", CUT]
    assert len(expand_braces("{1..9}" * 20)) == MAX_BRACES, "ranges hide nothing"
    assert expand_braces("{a,b}" * 9)[-1] == "b" * 9


NAMES = " ".join(f"a{number}" for number in range(600))
LISTED = NAMES.replace(" ", ",")


@pytest.mark.parametrize(
    "text",
    [
        f"rm -rf {{{LISTED},/}}",
        f"mkdir -p {{{LISTED},b}}/{{a,b}}",
        f"rm -rf {'/.' * 2000}/x{'{a..z}' * 5}/..",
        f"x='{NAMES} /'; rm -rf $x",
        f"x='{NAMES} /'; y=\"$x\"; rm -rf $y",
        f"x='{'a' * MAX_VALUE} /'; rm -rf $x",
        f"x=': {'a' * MAX_VALUE}; sudo ls'; eval \"$x\"",
        f"x=': {'a' * MAX_VALUE}; sudo ls'; bash -c \"$x\"",
        f"x=': {'a' * MAX_VALUE}; sudo ls'; echo \"$x\" | bash",
        f"x=': {'a' * MAX_VALUE}; sudo ls'; echo \"$x\" > run; bash run",
        f"x='{'a' * MAX_VALUE} /'; echo \"$x\" | xargs rm -rf",
        f'x=\'1 #{"a" * MAX_VALUE}\nimport os; os.system("sudo ls")\'; python3 -c "$x"',
        f"printf -v x '%s' ': {'a' * MAX_VALUE}; sudo ls'; eval \"$x\"",
        f"read x <<< ': {'a' * MAX_VALUE}; sudo ls'; eval \"$x\"",
        f"x='# {'a' * MAX_VALUE}\n* * * * * sudo ls'; echo \"$x\" | crontab -",
        f"x='{'a' * MAX_VALUE}\n!sudo ls'; echo \"$x\" | ed f",
        f"x='{'a' * MAX_VALUE}\n:!sudo ls'; echo \"$x\" | vi -s -",
        f"x='s/a/{'a' * MAX_VALUE}/;1e sudo ls'; sed \"$x\" f",
        f"x='a:\n\t#{'a' * MAX_VALUE}\n\tsudo ls'; echo \"$x\" | make -f -",
        f'x=\'#{"a" * MAX_VALUE}\nsystem("sudo ls")\'; perl -e "$x"',
        f"python3 -c 'import os; os.system(\"{':; ' * 1100}sudo ls\")'",
        "python3 -c '" + "x = 1\n" * 2500 + "while True: os.fork()'",
        f"perl -{'w' * 20}e 'system(\"sudo ls\")'",
        f"perl -e 'open(F, \"{'a ' * 200}; sudo ls |\")'",
        f"watch -Q {NAMES} sudo ls",
        f"set -- {NAMES} sudo; ${{601}} ls",
        f"sh -c '${{601}} ls' x {NAMES} sudo",
        f"f() {{ ${{601}} ls; }}; f {NAMES} sudo",
        f'set -- {NAMES} rm -rf /; "${{@:601}}"',
        f"sh -c '${{@:601}}' x {NAMES} rm -rf /",
        f'x=({NAMES} rm -rf /); "${{x[@]:600}}"',
        "[s][u][d][o]" + "*" * 70 + " ls",
        f"[{'s' * 5000}]udo ls",
        "rm -rf /[e][t]" + "*" * 70 + "c",
        f"rm -rf /[{'e' * 5000}]tc",
        "for x in s{A..z}do; do $x ls; done",
        "set -- s{a..z}{a..z}o; ${524} ls",
        "rm -rf /{a..z}{a..z}{a..z}",
        "; ".join(f"x=a{number}; y=-b{number}; z=c{number}" for number in range(30))
        + "; x=rm; x=a; y=-rf; z=/; $x $y $z",
        "A=1 B=2 C=3 D=4 E=5 F=6 G=7 H=8 test -v 'x[$(sudo ls)]'",
        f"test -v 'x[{'a' * 70}$(sudo ls)]'",
        "python3 -c \"import os; os.system(':(){ :|:& };:')\"",
        "python3 -c \"import os; os.system('echo c3Vkbw== | base64 -d | sh')\"",
    ],
)
def test_nothing_is_judged_by_its_beginning(text: str) -> None:
    assert isinstance(judge(ShellText(text), BlocklistPolicy()), Deny)


@pytest.mark.parametrize(
    "text",
    [
        "mkdir -p {src,test}/{a..z}{1..9}",
        "for i in {1..500}; do touch file$i; done",
        f"files='{' '.join(NAMES.split()[:200])}'; wc -l $files",
        f"x='{'word ' * MAX_VALUE}'; git commit -m \"$x\"",
        f"x='{'word ' * MAX_VALUE}'; echo \"$x\" | jq .",
        f"x='{'word ' * MAX_VALUE}'; grep -c \"$x\" notes.txt",
        "python3 -c '" + "print(1)\n" * 3000 + "'",
        f'files=({" ".join(NAMES.split()[:200])}); wc -l "${{files[@]}}"',
        f'set -- {NAMES}; echo "${{@:200}}"',
        "for x in {1..31}; do for y in {0..23}; do for z in {1..59}; do touch log/$x/$y/$z; done; done; done",
        "for x in {a..z}; do for y in {a..z}; do mkdir -p $x/$y; done; done",
        f"PATH=/a:$PATH; {'PATH=$PATH:/b; ' * 40} make",
        "s=a; " + "".join(f's="$s {number}"; ' for number in range(40)) + "wc -l $s",
    ],
)
def test_long_values_that_nothing_runs_are_no_reason_to_refuse(text: str) -> None:
    assert not isinstance(judge(ShellText(text), BlocklistPolicy()), Deny)


def test_a_number_that_is_no_character_stands_for_an_unknown_one() -> None:
    assert ansi_c(r"\U0010ffff\U00110000\ud800\ue000") == "\U0010ffff\ufffd\ufffd\ue000"


def test_a_variable_may_have_as_many_values_as_can_be_followed() -> None:
    def values(count: int) -> str:
        return survey("".join(f"x={number}; " for number in range(count)) + "echo $x").unread

    assert values(MAX_VALUES) == ""
    assert "values" in values(MAX_VALUES + 1)


def test_a_word_behind_a_thousand_others_that_a_command_reads_is_known() -> None:
    text = f"read -a words <<< '{'a ' * 2000}sudo'; ${{words[2000]}} ls"
    assert ("sudo", "ls") in [command.argv for command in survey(text).commands]


def test_a_text_nobody_can_parse_is_judged_by_each_of_its_commands_once() -> None:
    text = "$(" * 30_000
    assert len(survey(text).commands) < 20
    assert isinstance(judge(ShellText(text), BlocklistPolicy()), Deny)


def test_what_is_behind_a_change_of_folder_is_judged_again() -> None:
    found = [command.argv for command in survey("$(rm -rf * ; rm -rf * ; cd / ; rm -rf *").commands]
    for folder in (at for at, argv in enumerate(found) if argv == ("cd", "/")):
        assert ("rm", "-rf", "*") in found[folder:]


def test_a_long_path_of_steps_up_is_read_in_one_pass() -> None:
    class Counted(set[str]):
        asked = 0

        def __contains__(self, path: object) -> bool:
            Counted.asked += 1
            return super().__contains__(path)

    made = Counted({"a", "a/b"})
    assert without_made("a/b/../../x", made, lambda _: False) == "x"
    Counted.asked = 0
    assert without_made("a/../" * 10_000, made, lambda _: True).count("/") == 19_999
    assert Counted.asked <= 2


def test_a_command_that_starts_thousands_knows_its_own_words_in_one_pass() -> None:
    class Counted(str):
        __slots__ = ()
        compared = 0

        def __eq__(self, other: object) -> bool:
            Counted.compared += 1
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    inner = tuple(Command((Counted("ls"), Counted("x"))) for _ in range(500))
    words = [word for _ in range(500) for word in (Counted("-exec"), Counted("ls"), Counted("x"), Counted(";"))]
    find = Command(("find", *words), runs=inner)
    assert find.own == ("-exec", ";") * 500
    assert Counted.compared < 20_000


@pytest.mark.parametrize("before", ["", "ls"])
def test_thousands_of_redirections_are_proven_in_one_pass(before: str) -> None:
    """For each redirection the proof looked at all others of the command."""

    def passes(count: int) -> int:
        counted = 0

        def count_them(frame: FrameType, event: str, argument: object) -> None:
            nonlocal counted
            counted += event == "call"

        text = before + " >a" * count
        sys.setprofile(count_them)
        try:
            analyse(text)
        finally:
            sys.setprofile(None)
        return counted

    assert passes(800) < 2.5 * passes(400)


def test_all_texts_inside_a_text_share_its_time_to_be_parsed():
    parses = Parses(seconds=0.02)
    texts = [f"echo {number}; {'a=(' * 1500}" for number in range(2000)]
    found = [parses.parse(text, MAX_BYTES) for text in texts]
    late = found.index("takes too long to parse")
    assert set(found[late:]) == {"takes too long to parse"}
    assert parses.parse(texts[0], MAX_BYTES) is found[0], "what is parsed stays parsed"


MANY = sized(3_000, 20_000)
"""How often a sign stands in the texts below, which under `make properties` are nearly as long as a text may be."""


@pytest.mark.parametrize(
    "text",
    [
        r"sed 's/e" + "\\" * 200 + "'",
        "sed 's/e" + r"\x" * MANY + "'",
        "echo {" + "," * 3 * MANY,
        "echo {a" + "{a," * MANY,
        "make " + "-e " * MANY,
        f"rg -g '{'{' + 'a,' * 3_000 + '}'}{'{' + 'a,' * 3_000 + '}'}{'{' + 'a,' * 3_000 + '}'}' x",
        "psql -c 'select pg_read_" + "file" * (MANY * 3 // 4) + "'",
        "sqlite3 x <<end" + "\n" * 3 * MANY + "end",
        "printf " + "%1" * MANY,
        'python -c "system ' + r"\'" * (MANY * 3 // 2) + '"',
        "cat " + "/proc/" * (MANY // 2),
        "cpio -" + "o" * 3 * MANY + "x",
        "git --foo " + "a " * MANY + "status",
        "git " + "-C a " * (MANY // 4) + "status",
        "tar " + "-C a " * (MANY // 10) + "-cf x" + " b" * (MANY // 4),
        "env " + "".join(f"-C {number} " for number in range(50)) + "git status",
        "rm " + "-v " * (MANY // 2) + "x " * (MANY // 2),
        "a=(" + "[" * 3 * MANY + ")",
        "fd " + "-x a \\; " * (MANY // 10),
        "ls '" + "${a[" * 2 * MANY + "#'",
        "cat <<E\nE\n" * (MANY // 10),
        'let "x[' + r"\$(" * MANY + ']"',
        'let "x[' + r"\$(a " * (MANY // 2) + ")" * (MANY // 2) + ']"',
    ],
)
def test_an_expression_that_never_ends_is_given_up_at_once(text: str) -> None:
    """Each once took minutes or longer than anybody can wait: the search tried every way to read the same signs."""
    line = CommandFacts(text)
    assert judge(line, BlocklistPolicy()) is not None
    assert all(isinstance(path, str) for each in line.steps for path in path_words(each.command))
    assert not [each for each in line.steps if each.command.name == "rg" and reading(each.command) is None]
    assert all(Injection().command(each.command, each.folders) for each in line.steps)
    assert allowance(line, (), lambda _: None).action is None
    assert runs_its_input(text) in (True, False)
    assert all(may_make_links(each.command, lambda _: False) in (True, False) for each in line.steps)
    assert len([*git_calls(line)]) < 2


@pytest.mark.parametrize("call", ["$x$y'{}' ls", "rm -rf /$y$x'z{}'"])
def test_a_long_pattern_that_means_no_known_name_is_not_compiled(call: str) -> None:
    """To compile thousands of them took half a minute."""
    values = " ".join(f"v{number}" for number in range(20))
    line = f"for x in {values}; do for y in {values}; do {call.format('[abc]?*' * 130)}; done; done"
    compiled = 0

    def counted(frame: FrameType, event: str, argument: object) -> None:
        nonlocal compiled
        compiled += event == "call" and frame.f_code is fnmatch.translate.__code__

    sys.setprofile(counted)
    try:
        judge(ShellText(line), BlocklistPolicy())
    finally:
        sys.setprofile(None)
    assert compiled < 10


@pytest.mark.parametrize("text", [f"echo {'a ' * 6000}/ | xargs rm -rf", f"echo {'a ' * 20}/ | {'xargs ' * 8}rm -rf"])
def test_no_word_that_xargs_is_given_is_dropped(text: str) -> None:
    """Only the first 16 were looked at."""
    assert isinstance(judge(ShellText(text), BlocklistPolicy()), Deny)


@pytest.mark.parametrize("many", [9, 500, 10_000])
@pytest.mark.parametrize("last", ["rm -rf /", "sudo ls", "env rm -rf /", "sh -c 'rm -rf /'"])
def test_no_word_behind_an_unknown_option_of_a_wrapper_is_dropped(last: str, many: int) -> None:
    """Only the first 8 words were taken for the beginning of a command."""
    assert isinstance(judge(ShellText(f"strace --unknown {'a ' * many}{last}"), BlocklistPolicy()), Deny)


@pytest.mark.parametrize("many", [40, 2000])
@pytest.mark.parametrize(
    ("before", "each", "last", "after"),
    [
        ("python - <<'end'\nimport os\n", "x = 'a{}'\n", "os.system('rm -rf /')\n", "end"),
        ("ed x <<'end'\n", "!ls a{}\n", "!rm -rf /\n", "end"),
        ("vi x <<'end'\n", ":!ls a{}\n", ":!rm -rf /\n", "end"),
        ("make -f - <<'end'\na:\n", "\tls a{}\n", "\trm -rf /\n", "end"),
        ("crontab - <<'end'\n", "0 0 * * * ls a{}\n", "0 0 * * * rm -rf /\n", "end"),
    ],
)
def test_no_line_of_a_program_text_is_dropped(before: str, each: str, last: str, after: str, many: int) -> None:
    """Only the first 16 lines or 32 string literals were looked at."""
    text = before + "".join(each.format(number) for number in range(many)) + last + after
    assert isinstance(judge(ShellText(text), BlocklistPolicy()), Deny)


@pytest.mark.parametrize("size", sized((10_000,), (10_000, 100_000)))
@pytest.mark.parametrize(
    ("first", "reader"), [("/", "xargs rm -rf"), ("'rm -rf /;'", "sh"), ("'rm -rf /;'", "tee x; sh x")]
)
def test_the_beginning_of_what_a_command_is_fed_is_not_dropped(first: str, reader: str, size: int) -> None:
    """Only the last 16 KB were looked at."""
    text = f"{{ echo {first}; echo {'a ' * size}; }} | {reader}"
    assert isinstance(judge(ShellText(text), BlocklistPolicy()), Deny)


def test_more_text_than_is_kept_is_refused_only_where_it_is_read() -> None:
    """Variables may print more than a line holds."""
    printed = f"x={'a' * 1000}; echo / {'$x ' * 600}"
    assert isinstance(judge(ShellText(f"{printed} | xargs rm -rf"), BlocklistPolicy()), Deny)
    assert not isinstance(judge(ShellText(printed), BlocklistPolicy()), Deny)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (f"cat {'./' * 3000}.env", ".env"),
        (f"cat '{'./' * 3000}a b'", "a b"),
        (f"tool --file={'a/../' * 3000}.env", ".env"),
        (f"cat < {'.//' * 3000}.env", ".env"),
        (f"tool -{'a' * 17}.git/hooks/x", ".git/hooks/x"),
        (f"tool -{'a' * 3000}.git/hooks/x", ".git/hooks/x"),
        (f"tool -{'a' * 3000}{'b' * 200}/x", f"{'b' * 200}/x"),
        ("touch file{08..10}", "file09"),
    ],
)
def test_no_path_is_hidden_by_what_stands_before_it(text: str, named: str) -> None:
    """Words over 4096 characters named nothing, nor did values behind 16 letters of options."""
    (step,) = CommandFacts(text).surveyed_steps
    assert named in {*path_words(step.command), *odd_words(step.command)}


def test_a_setting_of_as_many_words_as_fit_is_read_in_one_pass() -> None:
    (setting,) = read_settings(b"[a]\nb = " + b"a " * (MAX_SETTINGS // 2 - 10) + b"c")
    assert setting.value is not None
    assert setting.value.split() == [*["a"] * (MAX_SETTINGS // 2 - 10), "c"]


def test_a_long_name_of_a_section_is_not_repeated_for_each_of_its_settings() -> None:
    with pytest.raises(NotReadable, match="a section with a long name"):
        read_settings(b'[a "' + b"x" * 200_000 + b'"]\n' + b"a\n" * 100_000)


def test_each_of_thousands_of_aliases_is_judged_by_itself() -> None:
    many = sized(5_000, 20_000)
    settings = read_settings(b"[alias]\n" + b"".join(b"a%d = !x\n" % number for number in range(many)))
    assert not [*dangers(Repository("this repository", settings), "status")]
    assert len([*dangers(Repository("this repository", settings), "a7")]) == many


def index_entry(name: bytes) -> bytes:
    """Return an entry of an index of version 4 for a repository, with a long name that adds to the one before."""
    return bytes(24) + b"\x00\x00\xe0\x00" + bytes(32) + b"\x0f\xff" + b"\0" + name + b"\0"


@pytest.mark.parametrize(
    "entries",
    [index_entry(b"")[:-2] + b"\xff" * 2_000_000, index_entry(b"a" * 2_000_000) + index_entry(b"b") * 100_000],
)
def test_an_index_made_to_be_slow_is_given_up(entries: bytes) -> None:
    """A number of a million digits, or a name of megabytes in each entry, once took hours."""
    with pytest.raises(ValueError, match="too l"):
        gitlinks(struct.pack(">4sII", b"DIRC", 4, 1_000_000) + entries)


REFUSED, ASKED, OTHERWISE = "the text is refused", "the user is asked", "nothing is lost, for the reason beside it"
LIMITS = {
    "blocklist.MAX_PATTERN": REFUSED,
    "shell.arguments.MAX_SCRIPT": ASKED,
    "shell.command.MAX_BYTES": REFUSED,
    "shell.command.MAX_DEPTH": REFUSED,
    "shell.command.MAX_FOUND": REFUSED,
    "shell.command.MAX_SECONDS": REFUSED,
    "shell.command.MAX_TREE_DEPTH": REFUSED,
    "shell.command._MAX_LITERAL": OTHERWISE,  # the parser reads a longer text
    "shell.guesses.MAX_FED_TEXT": REFUSED,
    "shell.guesses.MAX_PIPED": REFUSED,
    "shell.options.MAX_PATTERN": REFUSED,
    "shell.reading.MAX_AHEAD": OTHERWISE,  # what a loop reads are only more guesses, and the same holds for a file
    "shell.reading.MAX_NESTED": OTHERWISE,
    "shell.reading.MAX_READINGS": REFUSED,
    "shell.reading._LONGEST": OTHERWISE,  # a damaged text is read in another way as well
    "shell.syntax.MAX_PIPES": REFUSED,
    "shell.walk.MAX_COMMANDS": REFUSED,
    "shell.words.MAX_BRACES": REFUSED,
    "shell.words.MAX_CHOICES": OTHERWISE,  # only numbers are left out, of which each is taken at least once
    "shell.words.MAX_FIELDS": REFUSED,
    "shell.words.MAX_RANGE": OTHERWISE,  # all numbers of a range are alike
    "shell.words.MAX_SHIFTS": REFUSED,
    "shell.words.MAX_SPREAD": REFUSED,
    "shell.words.MAX_VALUE": REFUSED,
    "shell.words.MAX_VALUES": REFUSED,
    "shell.words._LONGEST_WORD": REFUSED,
    "shell.wrappers.MAX_WRAPPERS": REFUSED,
    "shell.wrappers.MAX_GUESSED": REFUSED,
    "paths.command_paths.MAX_FOLDERS": ASKED,
    "paths.command_paths.MAX_WORDS": ASKED,
    "paths.command_paths._MAX_LETTERS": OTHERWISE,  # no name of a file is longer
    "paths.command_paths._MAX_WORD": OTHERWISE,  # no path is longer without the steps that lead nowhere
    "paths.links.MAX_LOOKS": ASKED,
    "rules.policy_rules.MAX_WORDS": ASKED,
}
"""What happens to a text beyond each limit of what is read of it. A new limit needs a test that says so."""


def test_beyond_each_limit_of_what_is_read_a_text_is_refused_or_asked_about() -> None:
    gates = Path(acp_agent.gates.__file__).parent
    found = set[str]()
    for place in (
        gates / "blocklist.py",
        *(file for name in ("shell", "paths", "rules") for file in (gates / name).glob("*.py")),
    ):
        module = ".".join(place.relative_to(gates).with_suffix("").parts)
        names = re.findall(r"^(_?(?:MAX|MOST|LONGEST)(?:_[A-Z_]+)?) = ", place.read_text(), re.MULTILINE)
        found |= {f"{module}.{name}" for name in names}
    assert found == {*LIMITS}
