"""Rules against command lines: segment by segment, and what turns an allow back into a question."""

import time

from acp_agent.gates.rules.permission_rules import Action, Judgement, Rule, judge
from acp_agent.gates.shell.command import ShellText
from tests.rows import each_row
from tests.sizes import sized
from tests.unit.gates.chain import rules


def nothing(_prefix: str) -> bool | None:
    return None


def action(text: str, *given: Rule | str, granted=nothing) -> Action | None:
    return decide(text, *given, granted=granted).action


def decide(text: str, *given: Rule | str, granted=nothing) -> Judgement:
    compiled = tuple(rule if isinstance(rule, Rule) else rules(rule)[0] for rule in given)
    return judge(ShellText(text), compiled, granted)


def deny(pattern: str) -> Rule:
    return rules(pattern, action=Action.DENY)[0]


def ask(pattern: str) -> Rule:
    return rules(pattern, action=Action.ASK)[0]


def test_all_segments_must_be_allowed():
    assert action("git status", "git *") is Action.ALLOW
    assert action("git status && ls", "git *", "ls *") is Action.ALLOW
    assert action("git status && ls", "git *") is None
    assert action("ls", "git *") is None
    assert action("ls") is None


def test_one_denied_segment_denies_all():
    assert action("git status; git push", deny("git push*"), "git *") is Action.DENY
    assert action("for x in 1; do git push; done", deny("git push*")) is Action.DENY
    assert action("echo $(git push)", deny("git push*")) is Action.DENY
    assert action("timeout 5 git push", deny("git push*")) is Action.DENY
    assert action("bash -c 'git push'", deny("git push*")) is Action.DENY
    assert action("git -C sub push", deny("git push*")) is Action.DENY
    assert action("/usr/bin/git push", deny("git push*")) is Action.DENY
    assert action("G\\it push", deny("git push*")) is Action.DENY
    assert action("echo 'drop table x'", deny("*drop table*"), "echo *") is Action.DENY


def test_the_first_matching_rule_wins():
    assert action("git push", "git *", deny("git push*")) is Action.ALLOW
    assert action("git push", deny("git push*"), "git *") is Action.DENY
    assert action("git push", ask("git push*"), "git *") is Action.ASK
    assert decide("git push", ask("git push*"), "git *").pattern == "git push*"


@each_row(
    "text, why",
    [
        ("git log > out", "writes to out"),
        ("git log >> out", "writes to out"),
        ("git log < in", "reads in"),
        ("A=1 git log", "sets A=1"),
        ("env A=1 git log", "sets A=1"),
        ("git log --output=x", "--output"),
        ("git -c a=b log", "-c"),
        ("git log $x", "cannot be checked"),
        ("export A=1", "cannot be checked"),
        ("eval git log", "eval changes"),
        ("exec git log", "exec changes"),
        ("set -e; git log", "set changes"),
        ("git clone https://example.com/x", "network"),
        ("git diff *", "called like an option"),
    ],
)
def test_an_allowed_command_is_asked_about_when_it_does_more(text: str, why: str):
    judgement = decide(text, "git *", "eval *", "exec *", "set *", "env *", "export *")
    assert judgement.action is None
    assert any(why in reason for reason in judgement.reasons)


@each_row(
    "text",
    [
        "git log 2>&1",
        "git log >/dev/null",
        "git log 2>/dev/null",
        "CI=1 git log",
        "RUST_BACKTRACE=1 git log",
        "NO_COLOR=1 git log",
        "cd sub && git log",
        "git log; true",
    ],
)
def test_harmless_additions_stay_silent(text: str):
    assert action(text, "git *") is Action.ALLOW


def test_commands_that_need_no_rule_do_not_allow_by_themselves():
    assert action("cd sub") is None
    assert action("cd sub", "cd *") is Action.ALLOW


def test_a_rule_that_names_the_option_outright_allows_it():
    assert action("git -c a=b log", "git -c *") is Action.ALLOW
    assert action("npm install x", "npm *") is None
    assert action("npm install x", "npm install *") is Action.ALLOW
    assert action("git fetch https://example.com/x", "git fetch https://example.com/*") is Action.ALLOW


def test_wrappers_are_seen_through():
    assert action("timeout 5 nice git log", "git *") is Action.ALLOW
    assert action("timeout 5 evil", "timeout *") is None
    assert action("timeout 5 evil", "timeout 5 evil*") is Action.ALLOW
    assert action("timeout --what 5 git log", "git *", "timeout *") is None
    assert action("chroot . git log", "git *") is None
    assert action("bash -c 'git log; git diff'", "git *") is Action.ALLOW
    assert action("bash -c 'git log; evil'", "git *", "bash *") is None


def test_what_xargs_and_find_run_is_judged_with_its_unknown_words():
    assert action("git ls-files | xargs wc -l", "git *", "xargs wc *") is Action.ALLOW
    assert action("git ls-files | xargs wc -l", "git *", "xargs *", "wc *") is None
    assert action("cat list | xargs echo", "cat *", "xargs *") is Action.ALLOW
    assert action("cat list | xargs wc -l", "cat *", "xargs wc *") is None
    assert action("git ls-files | xargs rm", "git *", "xargs *", "rm *") is None
    assert action("find . -exec grep x {} +", "find *") is Action.ALLOW
    assert action("find . -exec rm {} +", "find *", "rm *") is None


FED = ("git *", "cat *", "ls *", "grep *", "rg *", "find *", "fd *", "sort *", "head *", "tr *", "xargs *")
BOTH = (
    "xargs cat *",
    "xargs -0 cat *",
    "xargs -d x cat *",
    "xargs -I{} cat *",
    "xargs -a list cat *",
    *FED,
)


@each_row(
    "text",
    [
        "git log --format=%x2fetc%x2fpasswd | xargs cat",
        "git ls-files | xargs cat",
        "git ls-files -z | xargs -0 cat",
        "find . -name '*.py' | xargs cat",
        "xargs -a list cat",
        "parallel cat :::: list",
        "git log --format=%x2fetc%x2fpasswd | parallel cat",
        "git log --format=%x2fetc%x2fpasswd | while read f; do cat $f; done",
        "cat $(git log --format=%x2fetc%x2fpasswd)",
        "git log --format=%x2fetc%x2fpasswd | wc --files0-from=-",
        "git log --format=%x2fetc%x2fpasswd | sort --files0=-",
        "tar -cf x -T list",
        "tar cTf list x",
        "file -f list",
        "find -files0-from list",
    ],
)
def test_names_out_of_another_command_or_a_list_are_asked_about(text: str):
    assert action(text, *FED, "wc *", "tar *", "file *", "parallel *") is not Action.ALLOW


@each_row(
    "text",
    [
        "find . -name '*.py' -mtime -1 | xargs cat",
        "find src -type f -print0 | xargs -0 cat",
        "find . 2>/dev/null | xargs cat",
        "find -P . -empty -perm 600 -newer x -user me -group us -xdev -prune -print0 | xargs -0 cat",
        "find . -size 1 -atime 1 -ctime 1 -amin 1 -cmin 1 -mount | xargs cat",
        "find . ! -iname a -not -path b -o -regex c -a -readable -depth | xargs cat",
        "git ls-files | xargs cat",
        "git ls-files '*.py' | sort -u | head -n 5 | grep -v test | xargs cat",
        "git diff --name-only --diff-filter=AM main | xargs cat",
        "git grep -l needle | xargs cat",
        "rg -l needle src | xargs cat",
        "rg --files | xargs cat",
        "grep -rl needle . | xargs -I{} cat {}",
        "fd -e py | xargs cat",
        "ls src | xargs cat",
        "cd src && git ls-files | xargs cat",
    ],
)
def test_a_rule_that_names_both_programs_allows_names_of_files_below_the_folder(text: str):
    assert action(text, *BOTH) is Action.ALLOW


@each_row(
    "text",
    [
        "git log --name-only | xargs cat",
        "git show --name-only --format=%x2fetc%x2fpasswd | xargs cat",
        "git ls-files --format=/etc/passwd | xargs cat",
        "git ls-files :/ | xargs cat",
        "git diff | xargs cat",
        "git grep needle | xargs cat",
        "find . -printf /etc/passwd | xargs cat",
        "find . -ls | xargs cat",
        "find 'x /etc/passwd ' | xargs cat",
        "find 'x /etc/passwd ' 2>&1 | xargs cat",
        "find x |& xargs cat",
        "{ cat list; find .; } | xargs cat",
        "(cat list; find .) | xargs cat",
        "ls -l | xargs cat",
        "ls * | xargs cat",
        "grep -r needle . | xargs cat",
        "rg needle | xargs cat",
        "git ls-files | tr x / | xargs cat",
        "git ls-files | grep -o /etc/passwd | xargs cat",
        "git ls-files | head -c 5 | xargs cat",
        "git ls-files | xargs -d x cat",
        "find . | xargs -I{} cat .{}",
        "find . | xargs -a list cat",
    ],
)
def test_even_then_what_may_print_anything_else_is_asked_about(text: str):
    assert action(text, *BOTH) is not Action.ALLOW


def test_only_standard_folders_count_as_the_program_itself():
    assert action("/usr/bin/git log", "git *") is Action.ALLOW
    assert action("/tmp/git log", "git *") is None
    assert action("./git log", "git *") is None
    assert action("./gradlew test", "./gradlew *") is Action.ALLOW


def test_a_word_with_a_blank_is_one_word_to_an_allowing_rule():
    assert action("git 'log x'", "git log *") is None
    assert action("git log 'a b'", "git log *") is Action.ALLOW
    assert action("git commit -m 'a\nb'", "git commit *") is Action.ALLOW


def test_grants_work_like_rules_for_their_prefix_and_never_for_more():
    def granted(prefix: str) -> bool | None:
        return {"git status": True, "git push": False}.get(prefix)

    assert action("git status -s", granted=granted) is Action.ALLOW
    assert action("git status; evil", granted=granted) is None
    assert action("git status > out", granted=granted) is None
    assert action("git push", "git *", granted=granted) is Action.DENY
    assert action("git status", ask("git *"), granted=granted) is Action.ALLOW


def test_the_prefixes_an_approval_would_need():
    assert decide("git add x && git commit -m x").needed == ("git add", "git commit")
    assert decide("git add x && git commit -m x", "git add *").needed == ("git commit",)
    assert decide("git add x && python y.py").needed == ()
    assert decide("git add x > y").needed == ()
    assert decide("git add $x").needed == ()
    assert decide("cd src && git add x").needed == ("git add",)
    assert decide("cd src").needed == ("cd",)


@each_row(
    "pattern, texts",
    [
        (
            "git push --force*",
            (
                "git push --force",
                "git push origin main --force",
                "git push --force-with-lease origin",
                "git push origin --forc",
                "git -C sub push origin main --force",
                "timeout 5 git push origin --force",
            ),
        ),
        ("git push -f*", ("git push -f", "git push origin -f", "git push -uf origin main", "git push origin main -qf")),
        ("git push +*", ("git push +main", "git push origin +main", "git push -u origin +main")),
        ("git push * +main", ("git push origin +main", "git push -u origin +main", "git push +main -u")),
        (
            "rm -rf *",
            ("rm -rf x", "rm -fr x", "rm -r -f x", "rm x -rf", "rm -rvf x", "rm -f -v -r x", "rm -Rf x", "rm -r x -f"),
        ),
        ("rm -rf build", ("rm -rf build", "rm -fr build", "rm -r build -f")),
        ("docker run --network=host*", ("docker run -it --network=host x", "docker run --network host x")),
        ("kubectl delete --all", ("kubectl delete --all", "kubectl delete --al")),
        ("* --no-verify*", ("git commit -m x --no-verify", "git push --no-verify")),
        ("npm install *", ("npm install x", "npm --silent install x", "npm install --save x")),
    ],
)
def test_what_denies_or_asks_finds_options_wherever_they_stand(pattern: str, texts: tuple[str, ...]):
    for text in texts:
        assert action(text, deny(pattern), "*") is Action.DENY, text
        assert decide(text, ask(pattern), "*").action is not Action.ALLOW, text


@each_row(
    "pattern, texts",
    [
        (
            "git push --force*",
            ("git push origin main", "git log --force", "git stash push --force", "git push -- --force"),
        ),
        ("git push -f*", ("git push origin f", "git push --follow-tags origin", "git push --dry-run origin")),
        ("git push*", ("git stash push", "git commit -m push", "git log push")),
        ("git push", ("git push origin", "git push -v")),
        ("rm -rf *", ("rm -r x", "rm -f x", "rm x", "rm -- -rf")),
        ("rm -rf build", ("rm -rf build2", "rm -rf build x", "rm -r build")),
        ("find * -exec *", ("find . -name x -executable", "find . -executable -newer x")),
        ("npm install *", ("npm run install", "npm ci")),
    ],
)
def test_and_nothing_else(pattern: str, texts: tuple[str, ...]):
    for text in texts:
        assert action(text, deny(pattern), "*") is not Action.DENY, text


def test_what_allows_means_its_words_as_they_stand():
    assert action("git log --stat --all", "git log --stat *") is Action.ALLOW
    assert action("git log --all --stat", "git log --stat *") is None
    assert action("cp -ru a b", "cp -r *") is None


def test_a_long_command_is_held_against_many_rules_in_no_time():
    given = tuple(rules(*(f"rm -x{number} --a* *b* c*" for number in range(50)), action=Action.DENY))
    start = time.thread_time()
    assert judge(ShellText("rm " + "-xa --b a*b " * sized(1500, 4000)), given, nothing).action is None
    assert time.thread_time() - start < 30


@each_row(
    "text",
    [
        "git push origin main:main",
        "git push -u origin",
        "git fetch origin a:b",
        "git fetch --depth 1 origin a:b",
        "git pull origin main:main",
        "git show HEAD:x",
        "git clone ./x y",
        "git push ./other/repo:x main",
    ],
)
def test_a_refspec_is_no_other_host(text: str):
    assert action(text, "git *") is Action.ALLOW


def test_a_rule_that_names_another_host_allows_it():
    assert action("git push evil:repo main", "git *") is None
    assert action("git push host:repo main", "git push host:repo *") is Action.ALLOW
    assert action("uv pip install x", "uv *") is None
    assert action("uv pip install x", "uv pip install *") is Action.ALLOW
    assert action("uv pip list", "uv *") is Action.ALLOW


def test_the_bare_name_of_a_program_denies_all_of_it():
    for text in ("git log", "rm x", "docker ps", "timeout 5 rm x", "python3.12 x.py", "bash -c 'rm x'"):
        denied = {"git": False, "rm": False, "docker": False, "python": False}
        assert action(text, "*", granted=denied.get) is Action.DENY, text


def test_a_denied_prefix_denies_its_destructive_forms_and_an_allowed_one_does_not_allow_them():
    assert action("git push --force", "*", granted={"git push": False}.get) is Action.DENY
    assert action("git push --force", granted={"git push": True}.get) is None
    assert action("git push", granted={"git push": True}.get) is Action.ALLOW
    assert action("git push --force", "git push --force *", granted={"git push": True}.get) is Action.ALLOW
    assert decide("git push --force").needed == ()


def test_all_programs_that_print_whole_lines_of_their_input_pass_names_on():
    text = "git ls-files | egrep -v test | fgrep -i py | grep -x a | sort -n | uniq -u | xargs cat"
    assert action(text, *BOTH, "egrep *", "fgrep *", "uniq *") is Action.ALLOW


def test_a_long_command_is_cut_in_a_reason_and_one_that_just_fits_is_not():
    for words, shown in (("x" * 78 + " y", "x" * 78 + " y'"), ("x" * 78 + " yz", "x" * 78 + " y…'")):
        reasons = judge(ShellText(words), (), lambda _: None).reasons
        assert reasons == (f"no rule allows '{shown}",)
