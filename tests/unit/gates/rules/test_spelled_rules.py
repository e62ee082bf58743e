"""What a rule with a wildcard leaves to the user unless its words spell it."""

from acp_agent.gates.rules.permission_rules import Action, judge
from acp_agent.gates.shell.command import ShellText
from tests.rows import each_row
from tests.unit.gates.chain import rules
from tests.unit.gates.hostile_model import DESTROYING


def allowed(text: str, *patterns: str) -> bool:
    return judge(ShellText(text), rules(*patterns), lambda _: None).action is Action.ALLOW


@each_row("text", DESTROYING)
def test_a_wildcard_covers_nothing_that_destroys(text: str):
    assert not allowed(text, "git *", "cargo *")
    assert not allowed(text, "*")


# A rule, what it covers, and what it does not.
SPELLED: tuple[tuple[str, str, str], ...] = (
    ("git push --force*", "git push --force --tags", "git push -f"),
    ("git push -f *", "git push -f origin main", "git push --force origin main"),
    ("git push *", "git push origin main", "git push origin +main"),
    ("git push origin +*", "git push origin +main", "git push -u origin +main"),
    ("git reset --hard*", "git reset --hard HEAD~1", "git reset --merge"),
    ("git reset *", "git reset HEAD~1", "git reset --hard"),
    ("rsync *", "rsync -av a/ b", "rsync -av --delete a/ b"),
    ("rsync *", "rsync --max-delete=3 a/ b", "rsync --delete-bef a/ b"),
    ("rsync -a *", "rsync -a a/ b", "rsync -a --del a/ b"),
    ("rsync -a --delete *", "rsync -a --delete a/ b", "rsync -a --remove-source-files a b"),
    ("rsync -a --remove-source-files *", "rsync -a --remove-source-files a b", "rsync -a a b"),
    ("git stash *", "git stash pop", "git stash drop"),
    ("git stash drop*", "git stash drop stash@{1}", "git stash clear"),
    ("git branch *", "git branch -d done", "git branch -D x"),
    ("git branch -D *", "git branch -D x", "git branch -M x y"),
    ("git checkout *", "git checkout main", "git checkout -- a.py"),
    ("git checkout *", "git checkout v1.2.3", "git checkout a.py"),
    ("git checkout -- *", "git checkout -- a.py", "git checkout -f main"),
    ("git restore *", "git restore a.py", "git checkout a.py"),
    ("git *", "git restore --staged a.py", "git restore a.py"),
    ("git *", "git restore -S .", "git restore -SW ."),
    ("git *", "git restore -sHEAD -S .", "git restore -sS ."),
    ("git *", "git restore -S --no-overlay .", "git restore -S --no-staged ."),
    ("git clean -fd*", "git clean -fd", "git clean -xfd"),
    ("git *", "git clean -nd", "git clean -fd"),
    ("timeout *", "timeout 5 cat x", "timeout 5 git push -f"),
    ("sed *", "sed -n 1p x", "sed -i d x"),
    ("sed -n *", "sed -n 1p x", "sed -ni d x"),
    ("sed -i *", "sed -i d x", "sed -ni d x"),
    ("uniq *", "uniq -c a", "uniq a b"),
    ("uniq a b", "uniq a b", "uniq a c"),
    ("xxd *", "xxd a", "xxd a b"),
    ("sort *", "sort -u a", "sort -u a -o b"),
    ("python -m json.tool *", "python -m json.tool a", "python -m json.tool a b"),
    ("python *", "python x.py", "python -c 'print(1)'"),
    ("python3 *", "python3 -m pytest", "python3 -m evil"),
    ("node *", "node x.js", "node -e 1"),
    ("node *", "node x.js", "node --eval=1"),
    ("perl *", "perl x.pl", "perl -e 1"),
    ("perl *", "perl x.pl", "perl -pi x"),
    ("ruby *", "ruby x.rb", "ruby -e 1"),
    ("php *", "php x.php", "php -r 1"),
    ("npx tsc *", "npx tsc --noEmit", "npx -c evil"),
    ("perl *", "perl -Ilib x.pl", "perl -wle 1"),
    ("perl -e *", "perl -e 1", "perl -E 1"),
    ("deno *", "deno run x.ts", "deno eval 1"),
    ("lua *", "lua x.lua", "lua -e 1"),
    ("git *", "git log --format=%an", "git log --format=%G?"),
    ("git *", "git show --pretty=%H", "git show --pretty=%+GS"),
    ("git *", "git tag '--format=%(*objectname)'", "git tag '--format=%(*signature)'"),
    ("git *", "git tag -a v1 -m x", "git tag -s v1 -m x"),
    ("git *", "git commit -m x", "git commit -S -m x"),
    ("git *", "git config --get user.name", "git config --global --get user.name"),
    ("git *", "git config --local -l", "git config -l"),
    ("git *", "git config list --local", "git config list"),
    ("git *", "git config get --all user.name", "git config get --all --regexp .*"),
    ("git *", "git config --local --get-urlmatch http x", "git config --get-urlmatch http x"),
    ("git *", "git fetch origin", "git fetch http://localhost:8000/x"),
    ("git fetch http://localhost:8000/*", "git fetch http://localhost:8000/x", "git fetch http://localhost:8001/x"),
    ("cargo *", "cargo build --help", "cargo help build"),
)


@each_row("rule,covered,left", SPELLED)
def test_a_rule_covers_what_its_words_spell(rule: str, covered: str, left: str):
    assert allowed(covered, rule), covered
    assert not allowed(left, rule), left
