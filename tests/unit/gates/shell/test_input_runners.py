"""Programs that run as commands what they read: what is written to them is judged as a command line."""

from acp_agent.core.types import Allow, Deny
from acp_agent.gates.blocklist import BlocklistPolicy, judge
from acp_agent.gates.shell.command import ShellText
from acp_agent.gates.shell.programs import runs_its_input
from tests.rows import each_row

RUNS = r"""
bash
sh -i
bash --norc
zsh
exec bash
env FOO=1 sh
cd src && bash
bash -s one
nohup bash
bash -l
python3
python3 -i app.py
python -
node
irb
python3 -m pdb app.py
python3.12
perl
psql shop
ssh host
docker exec -it box sh
docker run -i image
kubectl exec -i pod -- sh
sudo -s
tmux
xargs rm
cat | sh
tee log | bash
bash /dev/stdin
source /dev/stdin
bash -c 'exec bash'
while read -r l; do $l; done
while read -r l; do eval "$l"; done
eval "$(cat)"
echo 'unclosed
$SHELL
vim a.txt
""".strip().splitlines()
READS = """
npm run dev
python3 -m http.server 8000
python3 app.py
python3 -u manage.py runserver
node server.js
cargo watch -x check
bash run.sh
sh -c 'npm start'
make serve
head -n 1; echo bye
cat
flask run --port 5000
cd web && npm run dev
PORT=3000 node server.js
java -jar app.jar
ruby server.rb
php -S 127.0.0.1:8000 -t public
while true; do npm test; done
""".strip().splitlines()


@each_row("command", RUNS)
def test_a_shell_or_a_way_to_one_runs_what_it_reads(command: str):
    assert runs_its_input(command)


@each_row("command", READS)
def test_a_server_or_a_script_does_not(command: str):
    assert not runs_its_input(command)


@each_row(
    "text",
    [
        "make SHELL=sudo",
        "make test SHELL:=/usr/bin/sudo",
        "gmake CC=sudo",
        'let "x=a[\\$(sudo ls)]"',
        'let "x[\\$(echo \\`sudo ls\\`)]"',
        'let "x[\\$(echo \\$(sudo ls))]"',
        'let "x[\\$(echo a)] + y[\\$(sudo ls)]"',
        'let "x[\\`echo a\\`] + y[\\`sudo ls\\`]"',
        'test -v "x[\\$(sudo ls)]"',
        'test -v "x[\\`sudo ls\\`]"',
        'PS4="\\$(sudo ls)"; set -x; ls',
    ],
)
def test_a_program_that_a_variable_or_an_evaluated_index_names_is_judged(text: str):
    assert isinstance(judge(ShellText(text), BlocklistPolicy()), Deny)


@each_row(
    "text",
    [
        "make SHELL=/bin/bash CC=gcc PREFIX=/usr/local TOOL=curl test",
        'let "x=a[1]+\\$y"',
        'PS1="\\$(date) "; ls',
        'echo "x[\\$(sudo ls)]"',
    ],
)
def test_an_honest_variable_or_index_is_not_refused(text: str):
    assert judge(ShellText(text), BlocklistPolicy()) == Allow()
