"""Grammars of text, search and file programs, held against the programs themselves.

A call that a rule such as `grep *` allows must do with real files what the grammar says: print no file and change no
file that it does not name.
"""

import gzip
import re
import shlex
import shutil
import subprocess
import tarfile
import zipfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acp_agent.gates.paths.command_paths import path_words
from acp_agent.gates.paths.written_paths import written
from acp_agent.gates.rules.permission_rules import Action, judge
from acp_agent.gates.shell.command import Plain, ShellText, analyse
from acp_agent.gates.shell.grammar import Grammar, grammar_of
from tests.rows import each_row
from tests.sizes import THOROUGH, sized
from tests.unit.gates.chain import rules
from tests.unit.gates.shell.grammars import known_programs

CANARY = "canary-7f3a"
PROGRAMS = tuple(name for name in known_programs() if name != "git")
NOT_RUN = frozenset(("date", "hostname", "type", "scp", "7z", "7za", "7zr", "7zz", "jar"))
"""What sets the machine, asks the network, has subcommands only, or takes long to start."""
SLOW = frozenset(("pytest", "py.test"))
"""What starts in a second or more: `make properties` runs it, waits for it, and leaves out most of its calls."""
UNPACK = frozenset(("tar", "gtar", "bsdtar", "unzip", "split", "ar", "cpio"))
"""Programs that make files whose names stand in no argument."""
MAKES = {"ctags": "tags", "ctest": "Testing", "pytest": ".pytest_cache", "py.test": ".pytest_cache", "ld": "--"}
"""What else a program makes, by a name of its own. `ld -Map --` takes the two dashes for a file."""
STARTS = {
    **dict.fromkeys(
        ("tar", "gtar", "bsdtar"), (("tf", "x.tar"), ("xf", "x.tar"), ("cf", "new.tar", "a"), ("-cf", "new.tar"))
    ),
    "unzip": (("x.zip",), ("-p", "x.zip")),
    "zip": (("x.zip", "a"), ("new.zip", "d")),
    **dict.fromkeys(("gunzip", "zcat", "gzip"), (("x.gz",), ("-d", "x.gz"))),
}
"""How calls begin that get as far as their options."""
GNU = (
    *("grep", "cat", "head", "tail", "wc", "nl", "tac", "cut", "tr", "sort", "uniq", "comm", "join", "paste", "fold"),
    *("expand", "unexpand", "od", "diff", "cmp", "sdiff", "sha256sum", "cksum", "b2sum", "base64", "sed", "seq"),
    *("basename", "dirname", "realpath", "readlink", "stat", "du", "df", "ls", "date", "id", "uname", "nproc", "tee"),
    *("touch", "mkdir", "rmdir", "cp", "mv", "ln", "install", "rm", "chmod", "chown", "chgrp", "truncate", "split"),
    *("hexdump", "column", "file", "free", "uptime", "gzip", "xz"),
)
OTHERWISE = frozenset(
    (
        # Values in the help of only some versions, or shown by one of the names only.
        *(("grep", "--context"), ("cp", "--update"), ("mv", "--update"), ("ls", "-F"), ("ls", "-p"), ("sort", "-C")),
        *(("sort", "--check"), ("tail", "-f"), ("du", "--time"), ("file", "-P"), ("file", "--parameter")),
        *(("free", "--count"), ("free", "--seconds")),
    )
)
USAGE = re.compile(
    r"^ {1,8}(?:(-\w)\b(?:[ ]?(\[?=?[A-Z][A-Z_]*\]?|\[[A-Z]+\]|<\w+>))?(?:, +| +(?=--)))?"
    r"(?:(-\w)\b, )?(?:(--[\w-]+)(\[=[^\]]+\]|=[^ ,]+| <\w+>| [A-Z]{2,}\b)?)?"
)


KNOWN = r"""
grep -rn5 x src
grep -A3 -B 3 -e x src
grep --color=never -c x a
grep -5n x a
rg -uu -g '*.py' x
rg --files src
ag -C 3 x src
ack -l x
find . -type f -newer a -print0
fd -H -e py x src
head -20 a
head -n20 a
tail -n +5 a
tail -c 20 a
sort -t, -k2,2n a
sort -rnk2 a
cut -d: -f1 a
uniq -c a
diff -ru a b
diff -U3 a b
diff -5 a b
cmp -l a b
od -An -tx1 a
xxd -l 16 a
hexdump -C a
column -t -s, a
base64 -d a
sha256sum a
sed -n 5p a
awk -F: '{print $1}' a
jq -r --arg x y '.[$x]' a
jq -n '1'
yq -o json .a a
seq -w 1 10
test a -ot b
stat -c %s a
ls -la --color=auto
ls -I x
tree -L 2 -I 'a|b'
tree -aL2
du -sh src
df -h .
date -u +%s
date -d yesterday
touch -d 2020-01-01 a
mkdir -pm 755 a
cp -a a b
cp -rt b a
mv -v a b
ln -sfn a b
rm -rf a
chmod -R u+w a
chmod -x a
split -l 100 a
tar xzvf a.tgz
tar -xf a.tar -C b
tar tf a.tar
tar czf a.tgz --exclude=b c
zip -rq a.zip b
zip -r a.zip b -x c
unzip -q a.zip -d b
unzip -l a.zip
gzip -dk a.gz
gunzip -c a.gz
xz -T0 a
zstd -19 -T0 a
zcat a.gz
rsync -av a b
rsync -a --exclude x a b
ar rcs a.a b.o
jar tf a.jar
7z l a.7z
tee -a a
printf '%s' a
realpath --relative-to=a b
id -un
uname -sr
free -m
"""
ASKING = r"""
grep -f list x
grep --file=list x
grep -rnf list
zgrep -flist x
rg -flist x
rg -z x
rg --pre=cat x
ag --pager=cat x
ag -z x
ack --pager=cat x
ack --files-from=x y
ack -x y
ack --ackrc=x y
ack --output='$1' x
find . -files0-from list
find . -delete
find . -fls out
find . -okdir rm ;
fd x -xevil
fd x --exec=evil
fd -Hx evil
cat --show x
head -5c a
tail -5c a
wc --files0-from=list
sort -o out a
sort -T . a
sort -uoout a
sort --files0-from=list
sort --random-source=a b
sort --compress-program=cat a
uniq a b c
diff -l a b
diff --paginate a b
sdiff -o out a b
sdiff --diff-program=cat a b
colordiff -l a b
sha256sum -c list
md5sum --check list
file -f list
file -m magic a
file -C -m magic
file -z a
hexdump -f format a
strings @list
strings -T x a
du --files0-from=list
tree -o out
tree -R -L 1
tree --fromfile a
tree --info
tree -L -- -o out
tree -Lo 1 out
date -s x
date 01010000
date -f list
hostname evil
hostname -F list
printf -v PATH x
printf -vPATH x
test -v 'a[$(id)]'
jq -f prog a
jq -L lib . a
jq --slurpfile x a .
jq --rawfile x a .
jq env a
jq '$ENV' a
jq '"x"|modulemeta' a
jq --arg x -- -f prog
yq -i .a a
yq -s .a a
yq 'load("x")' a
yq 'envsubst' a
sed -f script a
sed -i.toml s/a/b/ a
sed -i'.git/hooks/*' s/a/b/ a
sed --in-place=.sh s/a/b/ a
sed --follow-symlinks -i s/a/b/ a
awk -f script a
awk -i inplace 1 a
gawk -l readdir 1 a
mawk -W exec a
cp --parents a b
cp -b -S .toml a b
mv -S .toml a b
install -s a b
install --strip-program=x a b
rm --no-preserve-root -r a
split --filter=cat a
split a part
split --additional-suffix=.sh a
ln -S x a b
tar cf h:x.tar a
tar -c -f h:x.tar a
tar cf x.tar '\057etc/passwd'
tar xPf x.tar
tar -xPf x.tar
tar cf x.tar -T list
tar cTf list x.tar
tar xf x.tar --transform=s/a/b/
tar cIf cat x.tar a
tar xf x.tar --one-top-level=a
tar xf x.tar --keep-directory-symlink
tar czf x.tgz --remove-files a
zip x.zip -@
zip -lf log x.zip a
zip -TT cat x.zip a
zip -m x.zip a
zip -b . x.zip a
unzip -: x.zip
gunzip -N a.gz
gzip -r .
gzip -S .toml a
xz --files=list
zstd -o out a
zstd -T0o out a
zstd -D x a
cpio -o
cpio -i
7z x a.7z
7z l @list
jar xfP a.jar
jar -xf a.jar
ar x a.a
ar t @list
rsync -e ssh a b
rsync -avze ssh a b
rsync --files-from=list a b
rsync --filter='. x' a b
rsync a h:b
scp -S cat a b
scp -o x a b
scp a h:b
tee --unknown a
touch --unknown a
chmod --unknown a
"""


def asks(text: str) -> bool:
    return judge(ShellText(text), rules(f"{text.split(maxsplit=1)[0]} *"), lambda _: None).action is not Action.ALLOW


@each_row(
    "text",
    ASKING.strip().splitlines(),
)
def test_what_may_do_more_than_its_arguments_show_asks(text: str):
    assert asks(text)


@each_row(
    "text",
    KNOWN.strip().splitlines(),
)
def test_everyday_forms_are_known(text: str):
    assert not asks(text)


def usage(program: str) -> dict[str, str]:
    """The options that `PROGRAM --help` shows: "" without a value, "=" with one, "?" with an optional one."""
    shown = subprocess.run([program, "--help"], capture_output=True, text=True, check=False, timeout=20)
    found: dict[str, str] = {}
    for line in shown.stdout.splitlines():
        match = USAGE.match(line)
        if match is None:
            continue
        short, own, second, long, value = match.groups(default="")
        arity = "?" if value.startswith("[") else "=" if value else ""
        if own or not long:
            found[short] = "?" if own.startswith("[") else "=" if own else ""
        elif short:
            found[short] = arity
        found |= {each: arity for each in (second, long) if each}
    found.pop("", None)
    return found


def arity_of(form: Grammar, option: str) -> str | None:
    if option in form.values:
        return "="
    return "?" if option in form.optional else "" if option in form.flags else None


def test_the_programs_themselves_give_every_listed_option_a_value_where_the_grammar_does():
    wrong: list[str] = []
    compared = 0
    for program in GNU:
        form = grammar_of(program)
        assert form is not None
        for option, arity in usage(program).items() if shutil.which(program) else ():
            ours = arity_of(form, option)
            if ours is not None and option not in form.unsure and (program, option) not in OTHERWISE:
                compared += 1
                wrong += [f"{program} {option}: it says {arity!r}, the grammar {ours!r}"] if ours != arity else []
    assert not wrong, "\n".join(wrong)
    assert compared > 300


class Ground:
    """A folder that a call runs in, with a secret and a folder beside it that it should leave alone."""

    def __init__(self, folder: Path) -> None:
        self.work, self.outside = folder / "work", folder / "outside"
        self.secret = self.outside / "secret"
        shutil.rmtree(folder, ignore_errors=True)
        self.work.mkdir(parents=True)
        self.outside.mkdir()
        self._fill()

    def _fill(self) -> None:
        self.secret.write_text(f"{CANARY}\n")
        for name in ("a", "b", "1", "5"):
            (self.work / name).write_text(f"text of {name}\n")
        with tarfile.open(self.work / "x.tar", "w") as archive:
            archive.add(self.work / "a", "packed")
        with zipfile.ZipFile(self.work / "x.zip", "w") as archive:
            archive.writestr("packed", "text")
        (self.work / "x.gz").write_bytes(gzip.compress(b"text"))
        (self.work / "d").mkdir(exist_ok=True)
        (self.work / "d" / "c").write_text("text of c\n")
        self.before = self.state()

    def state(self) -> dict[str, str]:
        return {
            str(path): str(path.readlink())
            if path.is_symlink()
            else path.read_text(errors="replace")
            if path.is_file()
            else f"{path.stat().st_mode:o}"
            for root in (self.work, self.outside)
            for path in root.rglob("*")
        }

    def changed(self) -> list[str]:
        """Return what is not as it was, and put that right."""
        now = self.state()
        changed = [name for name in {*now, *self.before} if now.get(name) != self.before.get(name)]
        if changed:
            for root in (self.work, self.outside):
                shutil.rmtree(root, ignore_errors=True)
                root.mkdir()
            self._fill()
        return changed

    def faults(self, argv: list[str]) -> list[str]:
        """Return what a call did that nothing it names shows; nothing for one that asks or names what is outside."""
        text = shlex.join(argv)
        verdict = analyse(text)
        if not isinstance(verdict, Plain) or asks(text):
            return []
        command = verdict.commands[0]
        if any(str(self.outside) in word for word in path_words(command)):
            return []
        printed = self._run(argv)
        named = [str(self.work / each.word) for each in written(command)]
        named += [str(self.work / MAKES[argv[0]])] if argv[0] in MAKES else []
        changed = [
            name
            for name in self.changed()
            if name.startswith(str(self.outside))
            or not (argv[0] in UNPACK or any(name.startswith(each.rstrip("/.")) for each in named))
        ]
        return ([f"{text} printed the secret"] if CANARY in printed else []) + [
            f"{text} changed {each}" for each in changed
        ]

    def _run(self, argv: list[str]) -> str:
        patience = 10 if argv[0] in SLOW else 1
        try:
            done = subprocess.run(
                argv, cwd=self.work, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=patience
            )
        except subprocess.TimeoutExpired as late:
            return str((late.stdout or b"") + (late.stderr or b""))
        return (done.stdout + done.stderr).decode(errors="replace")


def runnable() -> tuple[str, ...]:
    left_out = NOT_RUN if THOROUGH else NOT_RUN | SLOW
    return tuple(name for name in PROGRAMS if name not in left_out and shutil.which(name))


def forms_of(option: str, value: str) -> Iterator[list[str]]:
    yield [f"{option}={value}"] if option.startswith("--") else [f"{option}{value}"]
    yield [option, value]
    yield [option, "1", value]
    yield [option, "--", value]


def calls(ground: Ground, program: str) -> Iterator[list[str]]:
    """Every option of a program, with the secret and with a new file as its value, before and behind operands."""
    form = grammar_of(program)
    assert form is not None
    for option in sorted((*form.flags, *form.values, *form.optional)):
        for value in (str(ground.secret), str(ground.outside / "new"), "new"):
            for words in forms_of(option, value):
                yield [program, *words]
                yield [program, *words, "a"]
                yield [program, "a", *words]
                yield [program, "x", "a", *words]
                yield from ([program, *start, *words] for start in STARTS.get(program, ()))


_LETTER = st.sampled_from("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")
_WORDS = st.lists(
    st.sampled_from(("a", "b", "d", "x", "1", "--", "-", "new", ".", "{secret}", "{outside}/new")), max_size=3
)


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Ground:
    return Ground(tmp_path_factory.mktemp("ground"))


def bundles(program: str) -> st.SearchStrategy[tuple[str, str]]:
    """A program with letters of its own; sometimes one that it may not know."""
    form = grammar_of(program)
    assert form is not None
    own = {option[1] for option in (*form.flags, *form.values, *form.optional) if len(option) == 2}
    letter = st.sampled_from(sorted(own or {"x"}))
    return st.tuples(
        st.just(program), st.lists(st.one_of(letter, letter, letter, _LETTER), min_size=1, max_size=4).map("".join)
    )


@settings(max_examples=settings.default.max_examples * sized(4, 8))
@given(st.sampled_from(runnable()).flatmap(bundles), st.sampled_from(("", " ")), _WORDS)
def test_no_bundle_of_letters_reads_or_writes_what_it_does_not_name(
    ground: Ground, call: tuple[str, str], between: str, rest: list[str]
):
    program, letters = call
    words = f"-{letters}{between}{ground.secret}".split(" ") + rest
    argv = [program, *(each.format(secret=ground.secret, outside=ground.outside) for each in words)]
    assert ground.faults(argv) == []


@pytest.mark.soak
@pytest.mark.parametrize("program", runnable())
def test_no_listed_option_reads_or_writes_what_it_does_not_name(ground: Ground, program: str):
    step = 23 if program in SLOW else 1  # each option, value and form comes up, since 23 divides none of their numbers
    assert [fault for argv in islice(calls(ground, program), 0, None, step) for fault in ground.faults(argv)] == []


@each_row(
    "text, changed",
    [
        ("tee --ignore-interrupts hook", "hook"),
        ("cp a -x hook", "hook"),
        ("cp -axt folder a", "folder/a"),
        ("mv -v a hook", "hook"),
        ("install -m 755 a hook", "hook"),
        ("zip -n 1 hook a", "hook"),
        ("tar -czf hook a", "hook"),
        ("tar cCf folder hook a", "hook"),
        ("gunzip AGENTS.md.gz", "AGENTS.md"),
        ("xz -dk AGENTS.md.xz", "AGENTS.md"),
        ("uniq a hook", "hook"),
        ("uniq -f 1 a hook", "hook"),
        ("xxd -r a hook", "hook"),
        ("sort -uo hook a", "hook"),
        ("sdiff -o hook a b", "hook"),
        ("sqlite3 hook 'create table t (x)'", "hook"),
        ("sqlite3 'file:hook?mode=rwc' 'create table t (x)'", "hook"),
        ("rsync -a a hook", "hook"),
        ("touch -r a hook", "hook"),
        ("chmod --reference=a hook", "hook"),
    ],
)
def test_what_a_program_changes_is_known(text: str, changed: str):
    verdict = analyse(text)
    assert isinstance(verdict, Plain)
    assert changed in {each.word for each in written(verdict.commands[0])}


def test_a_pattern_may_stand_for_the_file_that_is_written():
    verdict = analyse("uniq *")
    assert isinstance(verdict, Plain)
    assert "*" in {each.word for each in written(verdict.commands[0])}
