"""The blocklist: unconditional, first, by whole commands."""

import pytest

from acp_agent.core.errors import ToolErrorCategory
from acp_agent.core.ports import Decision
from acp_agent.core.session_options import AutoApprove, SessionOptions
from acp_agent.core.types import Allow, Ask, CallOrigin, Deny
from acp_agent.gates.blocklist import BlocklistGate, BlocklistPolicy, Substitution, judge
from acp_agent.gates.shell.command import ShellText, survey
from tests.rows import each_row
from tests.unit.gates import everyday, hostile
from tests.unit.gates.chain import Chain, Judged, ScriptedApprover, call, command, rules

pytestmark = pytest.mark.anyio
DEFAULT = BlocklistPolicy()


def test_what_must_never_run_is_refused():
    assert not (broken := [text for text in hostile.U if not isinstance(judge(ShellText(text), DEFAULT), Deny)]), str(
        broken
    )


def test_everyday_commands_are_not_refused():
    judged = {text: judge(ShellText(text), DEFAULT) for text in (*everyday.COMMANDS, *everyday.CONSTRUCTS)}
    assert not (broken := {text: verdict for text, verdict in judged.items() if verdict != Allow()}), str(broken)


def test_only_a_function_that_grows_by_calling_itself_is_a_fork_bomb():
    for text in ("f() { f | f; }; f", "f() { f & }; f", ":(){ :|:& };:"):
        assert DEFAULT.find(survey(text)) == "fork bomb", text
    for text in ("f() { f | cat; }; f", "f() { cat | f; }; f", "f() { f; f; }; f", "f() { g | g & }; f"):
        assert DEFAULT.find(survey(text)) == "", text


def test_a_variable_whose_value_is_known_is_not_taken_for_an_empty_one():
    for text in ('$x"$y" sudo', "x=a; $x sudo", "x=a; ${x} sudo", 'x=a; "${x}" sudo', "x=a; $x; ${x}/b sudo"):
        assert judge(ShellText(text), DEFAULT) == Allow(), text


@pytest.mark.parametrize(
    "text",
    [
        "ls \\ # | sudo x",
        "ls \\\t# | sudo x",
        "ls }# | sudo x",
        "ls [# | sudo x",
        "[]#; sudo x",
        "ls | ] & [1]# | sudo x",
        "ls ==; sudo x }",
        "coproc (sudo x)",
        "a[ ]=b sudo x",
        "coproc a=1 sudo x",
        "ls ${a:-<(sudo x)}",
        "ls ${a/b/>(sudo x)}",
        "a=b ls\t=~ | sudo x }",
        "ls {# | sudo x",
        "a# | sudo x",
        "ls\r# | sudo x",
        "ls\\\n# | sudo x",
        "ls a\\\n\\\n# | sudo x",
        "a#; sudo x\n=b",
        "ls > \\ \nsudo x",
        "ls <<<$\nsudo x\n#a",
        "cat *<<E\na\nE\nls $x | sudo x",
        "cat @<<'E'\n${x}\nE\nsudo x\n",
        "cat <<E>f\nE\nls $x | sudo x",
        "cat <<E | \nE\nls $x | sudo x\nE",
        "cat <<'E#'\n$x\nE#\nls | sudo x",
        "cat <<EF\nE\\\nF\nls # \\\nsudo x\nEF\n",
        "cat <<E\na\\\nE\n: '\nE\nls # \\\nsudo x #'\n",
        'echo "a << b\n\\"c" ; sudo x # "',
    ],
)
def test_no_command_hides_in_what_only_the_parser_takes_for_text(text: str):
    assert isinstance(judge(ShellText(text), DEFAULT), Deny)


@pytest.mark.parametrize(
    "text",
    [
        "ls # | sudo x",
        "ls \\\n# | sudo x",
        "cat <<E\na\\\n# sudo x\nE\n",
        "cat <<'E' > a && ls # b\n\\documentclass{sudo}\n}# | sudo x\nE\nls",
        '[ $x == "sudo x" ] && [[ $x =~ ^a\\ (sudo|x)$ ]]; echo ${x[0]#sudo} ${#x}',
        'git commit -m "Shift: a << b\n\\"sudo\\" c" && git push',
        "git commit -m \"$(cat <<'E'\nsudo x\nE)\"",
        'x=$(test "$y" == a && echo b); grep "${y:-<(sudo|x)>}" a',
        "cat <<-E | head -1 >> a\n\tsudo x\n\tE\nls",
    ],
)
def test_real_comments_here_documents_and_expressions_run_nothing(text: str):
    assert judge(ShellText(text), DEFAULT) == Allow()
    assert not survey(text).damage


@pytest.mark.parametrize("first", ["for x in a sudo b; do", "if a; then x=sudo; else x=ls; fi;"])
@pytest.mark.parametrize(
    "then",
    [
        "y=$x; $y ls",
        'y="$x ls"; sh -c "$y"',
        "y=(a $x); ${y[1]} ls",
        "export y=$x; $y ls",
        "for y in b $x; do $y ls; done",
        'set -- "$x"; "$1" ls',
        'set -- a "$x"; shift; "$@" ls',
        'f() { "$1" ls; }; y=$x; f "$y"',
        'printf -v y %s "$x"; $y ls',
        'read y <<< "$x"; $y ls',
        'echo "$x ls" | sh',
        'sh <<< "$x ls"',
        'echo "$x" | xargs nice',
        'echo "$x ls" > run; sh run',
        'echo "$x ls" | tee run; sh run',
        'echo "sudo ls" > run; cp run "$x"; sh "$x"',
    ],
)
def test_each_value_that_a_variable_may_have_is_followed(first: str, then: str):
    text = f"{first} {then}{'; done' if first.endswith('do') else ''}"
    assert isinstance(judge(ShellText(text), DEFAULT), Deny)


@pytest.mark.parametrize(
    "text",
    [
        "echo a sudo ls | xargs -n1 nice",
        "echo a sudo | xargs -I% % ls",
        "echo sudo | xargs -i {} ls",
        "echo sudo | xargs --replace=x x ls",
        "echo etc | xargs -I% rm -rf /%",
        "echo 'sudo ls' | parallel",
        "parallel ::: 'sudo ls'",
        "parallel rm -rf ::: a /",
        "parallel rm -rf /{} ::: a etc",
    ],
)
def test_what_is_fed_to_xargs_or_parallel_may_be_the_program_or_stand_anywhere_in_its_call(text: str):
    assert isinstance(judge(ShellText(text), DEFAULT), Deny)


@pytest.mark.parametrize(
    "text",
    [
        "builtin echo ': b; sudo ls' | bash",
        "command printf 'sudo ls' | sh",
        "env -i A=1 printf 'sudo ls' | sh",
        "nice echo sudo ls | tee run; sh run",
        "mapfile -t x < <(printf 'rm\n-rf\n/\n'); \"${x[@]}\"",
        "read x < <(echo sudo); $x ls",
        "xargs rm -rf < <(echo /)",
        "bash < <(echo sudo ls)",
        "bash <(echo sudo ls)",
        ". <(echo sudo ls)",
        "BASH_ENV=<(echo sudo ls) bash -c :",
        "echo sudo ls > >(sh)",
        "echo sudo ls | tee >(sh)",
        "echo sudo > >(read x; $x ls)",
        "echo / > >(xargs rm -rf)",
        "echo c3Vkbw== | base64 -d > >(sh)",
        "x=sudo; python3 <<E\nimport os; os.system('$x ls')\nE",
        "sed -f - f <<E\n1e sudo ls\nE",
        "echo 'import os; os.system(\"sudo ls\")' > a.py; python3 a.py",
        "cat > a.pl <<'E'\nsystem('sudo ls');\nE\nperl -w ./a.pl",
        "echo 'BEGIN { system(\"sudo ls\") }' > a.awk; awk -f a.awk",
        "echo '1e sudo ls' > a.sed; sed -f a.sed f",
    ],
)
def test_what_is_printed_or_written_is_judged_where_it_runs(text: str):
    assert isinstance(judge(ShellText(text), DEFAULT), Deny)


@pytest.mark.parametrize(
    "text",
    [
        "echo $x | xargs -n1",
        "echo 'a\nsudo ls' > notes.txt; sed s/a/b/ notes.txt",
        "echo 'print(1)' > a.py; echo 'sudo ls' > notes.txt; python3 a.py notes.txt",
        "awk 'BEGIN { x = \"Su Mo\"; if (a || b) print x }'",
        "for x in {a..z}; do for y in {a..z}; do for z in 1 2 3 4 5 6 7; do localedef -i $x -f $y $z; done; done; done",
    ],
)
def test_what_only_looks_like_a_blocked_command_is_not_refused(text: str):
    assert judge(ShellText(text), DEFAULT) == Allow()


@pytest.mark.parametrize(
    "text",
    [
        "x=sud; x+=o; $x ls",
        "x=s; x+=ud; x+=o; $x ls",
        "if a; then x=b; fi; x+=sudo; $x ls",
        "export x=sud; export x+=o; $x ls",
        "x='rm -rf '; x+=/; $x",
        "x='echo a; '; x+='sudo ls'; eval \"$x\"",
        'a=(rm -rf); a+=(/); "${a[@]}"',
        "a=(rm); a+=(-rf); a+=(/); ${a[*]}",
        'a=(x rm); a+=(-rf /); "${a[@]:1}"',
        "x+=sudo; $x ls",
        "x=sud; command export x+=o; $x ls",
        "x=sud; eval 'x+=o'; $x ls",
        "x=sud; >a >b x+=o; $x ls",
    ],
)
def test_what_is_added_to_a_variable_stands_behind_its_value(text: str):
    assert isinstance(judge(ShellText(text), DEFAULT), Deny)


def test_many_additions_to_a_variable_are_no_reason_to_refuse():
    for add in ("x+=' a'", "x+=(a)"):
        assert judge(ShellText(f"x=b; {f'{add}; ' * 100} wc $x"), DEFAULT) == Allow(), add
        some = "; ".join(add.replace("a", f"a{number}") for number in range(100))
        assert judge(ShellText(f"x=b; {some}; wc $x"), DEFAULT) == Allow(), add


@pytest.mark.parametrize("descriptor", ["0", "1", "10"])
@pytest.mark.parametrize(
    "text",
    [
        "@<a sudo ls",
        "@<&1 sudo ls",
        "@>a sudo ls",
        "@<>a sudo ls",
        "@<<<a sudo ls",
        "@<<E sudo ls\nE\n",
        "@<(a) sudo ls",
        "env @<a sudo ls",
        "ls|@<a sudo ls",
        "nice -n @<a 5 sudo ls",
        "sh -c @</dev/null 'sudo ls'",
        "awk -F @</dev/null 1 'BEGIN { system(\"sudo ls\") }'",
        "echo $(@<a sudo ls)",
        "echo `@<a sudo ls`",
        "(@<a sudo ls)",
        "cat <<E\nx\nE\n@<a sudo ls",
        "ls )( @>a sudo ls",
        "ls )( @<&1 sudo ls",
    ],
)
def test_the_number_of_a_descriptor_is_no_word(text: str, descriptor: str):
    assert isinstance(judge(ShellText(text.replace("@", descriptor)), DEFAULT), Deny)


def test_a_here_document_may_end_at_a_number():
    assert isinstance(judge(ShellText("cat << 0\na\n0\nsudo ls"), DEFAULT), Deny)
    assert isinstance(judge(ShellText("cat << 0>x\na\n0\nsudo ls"), DEFAULT), Deny)
    assert judge(ShellText("cat << 0\nsudo ls\n0\n"), DEFAULT) == Allow()


@pytest.mark.parametrize(
    "text",
    [
        "echo a >&'$(sudo ls)'",
        "echo a 1>& '`sudo ls`'",
        "x='$(sudo ls)'; echo a >&\"$x\"",
        "echo a >&'\"/dev/sda\"'",
        "echo a >&'/dev/s\\\nda'",
        "x=/dev/sda; echo a >&'$x'",
    ],
)
def test_what_bash_finds_when_it_expands_a_target_again_is_refused(text: str):
    assert isinstance(judge(ShellText(text), DEFAULT), Deny)


def test_an_unknown_descriptor_is_no_reason_to_refuse():
    for text in ("echo a >&$fd", 'echo a >&"${fd}"', "echo a >&2", "exec 3>&1", "ls >& log.txt", "cmd >&'a b'"):
        assert judge(ShellText(text), DEFAULT) == Allow(), text


@pytest.mark.parametrize(
    "call",
    [
        'less "+!$x$y ls"',
        'ed <<< "!$x$y ls"',
        'vim "+!$x$y ls"',
        'complete -C "$x$y ls" a',
        'compgen -C "$x$y ls"',
        'mapfile -C "$x$y ls" a',
        'bind -x "\\"a\\": $x$y ls"',
        'hash -p "$x$y" ls',
        "python3 -c \"import os; os.system('$x$y ls')\"",
        'crontab <<< "* * * * * $x$y ls"',
    ],
)
def test_each_combination_of_values_is_judged_in_what_a_program_runs(call: str):
    first = " ".join([*(f"a{number}" for number in range(20)), "su", "a20"])
    second = " ".join([*(f"b{number}" for number in range(10)), "do", *(f"b{number}" for number in range(10, 20))])
    text = f"for x in {first}; do for y in {second}; do {call}; done; done"
    assert isinstance(judge(ShellText(text), DEFAULT), Deny)


def test_each_file_that_a_variable_may_name_is_written():
    text = "for x in a /dev/sda b; do echo > $x; done"
    assert isinstance(judge(ShellText(text), DEFAULT), Deny)


@each_row(
    "text, pattern",
    [
        ("ls && sudo x", "sudo"),
        ('"$@" sudo x', "sudo"),
        ("${HOME#*} sudo x", "sudo"),
        ("${HOME/*} sudo x", "sudo"),
        ("${HOME:0:0} sudo x", "sudo"),
        ("${HOME:+} sudo x", "sudo"),
        ("${HOME:+sudo} x", "sudo"),
        ("x=; ${x:-sudo} ls", "sudo"),
        ("x=a; ${!x} sudo ls", "sudo"),
        ("x=a; x[0]=; $x sudo", "sudo"),
        ("printf -v x 's%s' udo; $x ls", "sudo"),
        ('x=sudo; y=ls; sh -c "$x ${y}"', "sudo"),
        ('x=sudo; y=ls; z="$x ${y}"; $z', "sudo"),
        ('x=sudo; y=ls; bash -c "${a:-$x $y}"', "sudo"),
        ('y=ls; bash -c "${a:-sudo ${y}}"', "sudo"),
        ("x=sudo; ${a:-$x} ls", "sudo"),
        ("x=sudo; ${a:-$x ls}", "sudo"),
        ("x=sudo; ${a:-${b:-$x}} ls", "sudo"),
        ("x=do; ${a:-su${b:-$x}} ls", "sudo"),
        ('x=/; rm -rf "${a:-$x}"', "rm -rf /"),
        ("printf -v x; $x sudo ls", "sudo"),
        ("x=a; x[0]=sudo; $x ls", "sudo"),
        ("x=a; declare x[0]=; $x sudo", "sudo"),
        ("x=(a b); ${x[9]} sudo ls", "sudo"),
        ("rm -rf ${HOME%/}", "rm -rf ~"),
        ("shift; rm -rf / $@", "rm -rf /"),
        ("mkfs.ext4 /dev/sda", "mkfs"),
        ("rm -r -f /", "rm -rf /"),
        ("rm -rf /*", "rm -rf /"),
        ("rm -rf ~", "rm -rf ~"),
        ("rm -rf ~/*", "rm -rf ~"),
        ("rm -rf $HOME", "rm -rf ~"),
        ("rm -rf /home/ann", "rm -rf ~"),
        ("rm -rf /etc", "rm -rf /etc"),
        ("find ~ -delete", "find ~ -delete"),
        ("mv ~ x", "mv ~"),
        ("chmod -R 777 ~", "chmod -R ~"),
        ("python -c \"import shutil; shutil.rmtree('/usr')\"", "rm -rf /usr"),
        ("python - <<'END'\nimport shutil; shutil.rmtree('/usr')\nEND", "rm -rf /usr"),
        ("python - x <<'END'\nimport shutil; shutil.rmtree('/usr')\nEND", "rm -rf /usr"),
        ("python <<'END'\nimport shutil; shutil.rmtree('/usr')\nEND", "rm -rf /usr"),
        ("start-stop-daemon --start --exec /usr/bin/sudo -- x", "sudo"),
        ("start-stop-daemon --exec=sudo -- x", "sudo"),
        ("start-stop-daemon -x/usr/bin/sudo", "sudo"),
        ("curl x", "curl"),
        ("dd if=a of=b", "dd if="),
        (":(){ :|:& };:", "fork bomb"),
        ("cat x > /dev/sda", "> /dev/sda"),
        ("systemctl reboot", "systemctl reboot"),
        ("init 6", "init 6"),
        ("kill -9 -1", "kill -1"),
        ("gkill -- -1", "kill -1"),
        ("grm -rf /", "rm -rf /"),
    ],
)
def test_the_refusal_names_the_pattern_that_matched(text: str, pattern: str):
    assert DEFAULT.find(survey(text)) == pattern
    verdict = judge(ShellText(text), DEFAULT)
    assert isinstance(verdict, Deny)
    assert f"'{pattern}'" in verdict.reason
    assert verdict.category is ToolErrorCategory.POLICY_BLOCKED


@each_row(
    "pattern, text",
    [
        ("terraform", "terraform plan"),
        ("terraform", "/usr/local/bin/terraform plan"),
        ("TERRAFORM", "echo; terraform apply"),
        ("terraform apply", "terraform apply -auto-approve"),
        ("git push --force", "git push origin main --force"),
        ("git push --force", "git -C sub push --force"),
        ("git push --force", "git push --forc"),
        ("git push -f", "git push -uf origin"),
        ("npm publish", "npm --tag x publish"),
        ("rm -rf /data", "rm -rf /data"),
        ("rm -rf /data/", "rm -rf /data/x"),
        ("docker run --privileged", "env A=1 docker run --rm --privileged x"),
        ("shred", "bash -c 'shred x'"),
        ("vault*", "vault-x read"),
        ("*form apply", "terraform apply"),
        ("?erraform", "Terraform plan"),
        ("[st]erraform", "terraform plan"),
        ("terraform", "?erraform plan"),
        ("terraform", "[s-t]erraform plan"),
    ],
)
def test_blocked_commands_add_patterns_that_match_in_every_spelling(pattern: str, text: str):
    assert judge(ShellText(text), DEFAULT) == Allow()
    assert isinstance(judge(ShellText(text), BlocklistPolicy(blocked=(pattern,))), Deny)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("terraform", "echo terraform"),
        ("terraform", "terraformer x"),
        ("git push --force", "git push"),
        ("git push", "git stash"),
        (" ", "ls"),
    ],
)
def test_blocked_commands_do_not_match_more_than_they_say(pattern: str, text: str):
    assert judge(ShellText(text), BlocklistPolicy(blocked=(pattern,))) == Allow()


def test_allowed_commands_lift_only_the_configurable_part():
    lifted = BlocklistPolicy(
        allowed=("CURL", "wget", "dd if=", "sudo", "rm -rf /", "rm", "mkfs", "reboot", "fork bomb")
    )
    for text in ("curl https://x", "wget x", "dd if=a of=b"):
        assert judge(ShellText(text), lifted) == Allow()
    for text in (
        "nc x 1",
        "sudo ls",
        "rm -rf /",
        "mkfs.ext4 x",
        "reboot",
        ":(){ :|:& };:",
        "dd if=a of=/dev/sda",
        "curl x > /dev/sda",
    ):
        assert isinstance(judge(ShellText(text), lifted), Deny), text


def test_a_command_both_blocked_and_allowed_is_blocked():
    assert isinstance(judge(ShellText("curl x"), BlocklistPolicy(blocked=("curl",), allowed=("curl",))), Deny)


def test_substitution_is_blocked_inspected_or_asked_about():
    inspect = BlocklistPolicy(substitution=Substitution.INSPECT)
    ask = BlocklistPolicy(substitution=Substitution.ASK)
    good, bad, dark = 'git commit -m "$(cat msg)"', "echo $(sudo ls)", "echo $($x)"
    block = BlocklistPolicy(substitution=Substitution.BLOCK)
    assert inspect == DEFAULT
    assert isinstance(judge(ShellText(good), block), Deny)
    assert judge(ShellText(good), inspect) == Allow()
    assert isinstance(judge(ShellText(dark), inspect), Deny)
    assert judge(ShellText(good), ask) == Ask("uses a command substitution $(…)")
    for policy in (block, inspect, ask):
        assert isinstance(judge(ShellText(bad), policy), Deny)
        assert judge(ShellText("echo '$(date)'"), policy) == Allow()


@each_row(
    "text",
    [
        *("$(cat x)", "`cat x` y", "s$(echo ud)o ls", 'eval "$(cat x)"', "bash <(cat x)", "source <(echo sudo ls)"),
        *(". <(cat x)", 'bash -c "$(cat x)"', "env $(cat x) ls", "timeout 5 $(cat x)", "find . -exec $(cat x) ;"),
        *('trap "$(cat x)" EXIT', 'bash <<< "$(cat x)"', "echo $(sudo ls)", "cat <(curl https://x.example)"),
        *("xargs $(cat x)", "$(echo rm) -rf /", "echo $(rm -rf /)", "echo `echo $(reboot)`"),
    ],
)
def test_what_a_substitution_runs_is_refused_if_it_is_blocked_or_cannot_be_told(text: str):
    assert isinstance(judge(ShellText(text), DEFAULT), Deny)


@pytest.mark.parametrize(
    "text", ["rm -rf $(cat x)", "rm `cat x`", "mv $(cat x) y", "x=$(cat y); rm $x", "find $(cat x) -delete"]
)
def test_only_the_user_may_let_output_name_what_is_taken_away(text: str):
    verdict = judge(ShellText(text), DEFAULT)
    assert isinstance(verdict, Ask)
    assert verdict.firm


@each_row("text", ["git commit -m 'Use it' -m \"Use `foo()` here\"", 'sed -i "s/x/`lazy()`/" a.ts'])
def test_a_model_that_quotes_code_in_backquotes_reads_what_they_mean_and_how_to_write_them(text: str):
    advice = "Write the command out. Text with backquotes belongs in single quotes: in double quotes the shell runs it."
    reason = "the command is blocked, because what the command substitution `…` runs cannot be told"
    assert judge(ShellText(text), DEFAULT) == Deny(reason, advice=advice)


async def test_what_a_substitution_opens_is_judged_by_the_other_gates(tmp_path):
    for text in ("echo $(cat /etc/hostname)", "echo $(cat ../x)", 'echo "$(cat .env)"', "cat <(cat ~/x)"):
        for conduct in (SessionOptions(), SessionOptions(auto_approve=AutoApprove.FULL_AUTO)):
            chain = Chain(str(tmp_path), str(tmp_path / "grants.toml"), rules("*"), conduct)
            assert await chain.fate(command(text)) in ("asked", "refused"), text
    chain = Chain(str(tmp_path), str(tmp_path / "grants.toml"), (), SessionOptions(auto_approve=AutoApprove.FULL_AUTO))
    for text in (
        "cd $(git rev-parse --show-toplevel)",
        "make -j$(nproc)",
        'git commit -m "$(cat msg)"',
        "wc -l $(git ls-files)",
    ):
        assert await chain.fate(command(text)) == "silent", text


@each_row(
    "text",
    [
        *(
            "curl http://localhost:8000/x",
            "curl -s localhost",
            "curl --silent --fail localhost",
            "curl -sSf http://127.0.0.1:3000/api?x=1",
            "curl -I [::1]:80",
        ),
        *(
            "curl -X POST -d '{\"a\": 1}' -H 'Content-Type: application/json' http://localhost:8080/x",
            "timeout 5 curl localhost",
        ),
        *(
            "curl -so out.html localhost:1",
            "wget -qO- --max-redirect=0 http://localhost:8000/",
            "curl localhost:1 && make",
        ),
    ],
)
def test_downloads_from_this_machine_are_judged_like_other_commands(text: str):
    assert judge(ShellText(text), DEFAULT) == Allow()
    assert isinstance(judge(ShellText(text), BlocklistPolicy(blocked=("curl", "wget"))), Deny)


@each_row(
    "text",
    [
        *("curl", "curl https://x.example", "curl localhost https://x.example", "curl http://localhost.x.example/"),
        *(
            "curl http://localhost@x.example/",
            "wget -qO- --max-redirect=0 --max-redirect=5 localhost",
            "curl -w '%output{x}y' localhost",
            "curl http://x.example#localhost",
            "curl 'http://{localhost,x.example}/'",
        ),
        *(
            "curl -x http://x.example localhost",
            "curl --proxy x.example localhost",
            "curl --connect-to ::x.example: localhost",
        ),
        *(
            "curl --resolve localhost:80:1.2.3.4 localhost",
            "curl -K cfg localhost",
            "curl --url https://x.example localhost",
        ),
        *(
            "curl -L http://localhost/",
            "curl -sL localhost",
            "curl --location localhost",
            "curl localhost --next https://x.example",
        ),
        *(
            "http_proxy=http://x.example curl localhost",
            "env http_proxy=x.example curl localhost",
            "export http_proxy=x; curl localhost",
            "curl localhost > /dev/sda",
            "curl localhost:$PORT",
        ),
        *(
            "curl http://127.0.0.1.x.example/",
            "curl http://[::ffff:1.2.3.4]/",
            "curl file:///etc/passwd",
            "curl -O localhost/x",
        ),
        *(
            "curl ftp://localhost/x",
            "curl $(cat url)",
            "./curl localhost",
            "curl -- localhost",
            "curl http://localhost\\\\@x.example/",
        ),
        *(
            "wget http://localhost/",
            "wget -O- http://localhost/",
            "wget --max-redirect=0 http://localhost/x",
            "wget -i list",
        ),
        *(
            "wget -e http_proxy=x.example -O- --max-redirect=0 localhost",
            "nc localhost 80",
            "curl localhost | sh",
            "curl -T x x.example",
        ),
        *(
            "curl 127.0.0.1,x.example",
            "curl http://localhost:80:x.example/",
            "curl --doh-url https://x.example localhost",
        ),
    ],
)
def test_downloads_from_elsewhere_stay_blocked(text: str):
    policy = BlocklistPolicy(groups=("remote_exec",))
    assert isinstance(judge(ShellText(text), policy), Deny), text


def test_a_blocked_download_says_what_is_permitted():
    verdict = judge(ShellText("curl https://x.example"), DEFAULT)
    assert isinstance(verdict, Deny)
    assert "a plain URL of this machine is permitted" in verdict.reason
    assert "`fetch` reads public pages" in verdict.reason


def test_what_cannot_be_read_is_refused():
    for text in ("x" * 300 * 1024, "a;" * 5000, "(" * 200 + "a" + ")" * 200, "ls\0sudo"):
        verdict = judge(ShellText(text), DEFAULT)
        assert isinstance(verdict, Deny)
        assert verdict.reason.startswith("the command is blocked, because it ")


async def test_it_holds_against_rules_grants_full_auto_and_the_user(tmp_path):
    chain = Chain(
        str(tmp_path),
        str(tmp_path / "grants.toml"),
        rules("*", "sudo *"),
        SessionOptions(auto_approve=AutoApprove.FULL_AUTO),
        approver=ScriptedApprover(*[Decision.ALLOW_ALWAYS] * 9),
    )
    for sent in (command("sudo ls"), command("sudo ls", origin=CallOrigin.USER)):
        assert not chain.asks(sent)
        result = await chain.run(sent)
        assert result.failure is not None
        assert result.failure.category is ToolErrorCategory.POLICY_BLOCKED
    assert chain.approver is not None
    assert chain.approver.questions == []
    assert chain.recorder.ran == []


def test_tools_without_a_command_pass():
    assert Judged(BlocklistGate(DEFAULT)).judge(call("read", arguments={"path": "sudo"})) == Allow()


def test_a_command_of_a_group_that_asks_is_asked_about_also_beside_a_harmless_substitution():
    policy = BlocklistPolicy(groups=("remote_exec", "package_install"))
    asked = Ask("belongs to the group package_install: npm install")
    for text, verdict in (("npm install x", asked), ('npm install "$(date)"', asked), ("npm ls", Allow())):
        assert judge(ShellText(text), policy) == verdict, text


@pytest.mark.parametrize("lines", [3, 60, 400])
def test_a_loop_over_many_lines_is_not_refused_whatever_it_makes_of_them(lines: int):
    body = "\n".join(f"a{number}=b{number}" for number in range(lines))
    for loop in (
        "while read l; do rm -rf build/$l; done",
        "while read a b c; do install -m $c $a $b; done",
        "while read l; do k=${l%%=*}; v=${l#*=}; f=conf/$k.$v; mkdir -p $f; echo $k $v > $f/x; done",
        "while read p; do d=out/$p; t=$d/tmp; mkdir -p $t; cp $p $t; mv $t/$p $d; rm -r $t; done",
        "while read f; do o=${f%.c}.o; cc -c $f -o $o; done",
        "{ read l; echo $l; }",
    ):
        assert judge(ShellText(f"{loop} <<E\n{body}\nE"), DEFAULT) == Allow(), loop
