"""Calls that are refused whoever makes them, and the configuration that refuses some of them.

Everything may run that can be allowed: full-auto, a rule for every command. What is refused all the same is refused
by the blocklist, the sandbox, protected paths, the verifiers, a denying rule or the policy.
"""

from acp_agent.core.types import JsonObject
from tests.unit.gates import hostile

_DENIED = """
[[tools.permissions.{0}]]
pattern = "{1}"
action = "deny"
"""
_ALLOWED = """
[[tools.permissions.{0}]]
pattern = "*"
action = "allow"
"""


def _rules(tool: str, *denied: str) -> str:
    return "".join(
        [*(_DENIED.format(name, each) for name in (tool, f"mcp_server_{tool}") for each in denied)]
        + [_ALLOWED.format(name) for name in (tool, f"mcp_server_{tool}")]
    )


CONFIG = f"""
[acp]
auto_approve = "full-auto"

[tools.protection]
protected_paths = ["Makefile"]

[tools.file]
deny_read = ["secrets/*"]

[tools.scrape]
denied_domains = ["denied.example"]

[tools.policy]
enabled = true
default_effect = "allow"

[[tools.policy.rules]]
effect = "deny"
tool = "*"
paths = ["*/vault/*", "https://vault.example/*"]

[[tools.policy.rules]]
effect = "deny"
tool = "*"
args_match = "forbidden"

{_rules("bash", "git push*", "npm publish", "terraform *")}
{_rules("read", "*.key")}
{_rules("write", "generated/*")}
{_rules("delete_path", "src/*")}
{_rules("fetch", "https://ruled.example/*")}
"""

Call = tuple[str, JsonObject]


def _run(*commands: str) -> tuple[Call, ...]:
    return tuple(("bash", {"command": each}) for each in commands)


def _paths(tool: str, *paths: str, **more: str) -> tuple[Call, ...]:
    return tuple((tool, {"path": each, **more}) for each in paths)


CALLS: dict[str, tuple[str, tuple[Call, ...]]] = {
    "commands that never run": ("blocklist", _run(*hostile.U[::6])),
    "commands that climb out": (
        "sandbox",
        _run(
            "cat ../../../etc/passwd",
            "cd src/../../.. && ls",
            "cp a ../../b",
            "git -C ../../x log",
            "cat a/.*/../x",
            "timeout 5 tee ../x",
        ),
    ),
    "commands a verifier refuses": (
        "verifiers",
        _run("cat ~/.ssh/id_rsa", "cp /etc/shadow .", "tar cf x ~/.ssh/id_rsa"),
    ),
    "commands a rule denies": (
        "permission",
        _run(
            "git push origin main",
            "git  'push'",
            "git status && git push",
            "timeout 5 git push",
            "npm publish",
            "ls; terraform apply",
        ),
    ),
    "commands the policy denies": (
        "policy",
        _run("cat vault/key", "cd vault && cat key", "tee vault/key", "echo forbidden", "ls | grep forbidden"),
    ),
    "paths outside": (
        "sandbox",
        (
            *_paths("read", "/etc/passwd", "../x", "src/../../x", "link-out/x"),
            *_paths("write", "/etc/motd", "../x", "link-out/x", content="x"),
            *_paths("delete_path", "../x", "link-out/x", "/etc"),
        ),
    ),
    "files that may not be read": ("sandbox", _paths("read", "secrets/a", "./src/../secrets/a")),
    "protected paths": (
        "sandbox",
        (
            *_paths(
                "write", ".git/hooks/pre-commit", ".git/config", "src/.bashrc", ".acp-agent/config.toml", content="x"
            ),
            *_paths("write", "hooks/post-commit", content="x"),
            *_paths("delete_path", ".git/hooks/sample"),
        ),
    ),
    "paths a rule denies": (
        "permission",
        (
            *_paths("read", "a.key"),
            *_paths("write", "generated/x", "./src/../generated/y", content="x"),
            *_paths("delete_path", "src/a"),
        ),
    ),
    "paths the policy denies": (
        "policy",
        (
            *_paths("read", "vault/key"),
            *_paths("write", "vault/new", content="x"),
            *_paths("write", "src/new", content="forbidden"),
            *_paths("delete_path", "vault/key"),
        ),
    ),
    "addresses nobody reads": (
        "sandbox",
        tuple(
            ("fetch", {"url": each})
            for each in (
                "https://127.0.0.1/x",
                "https://169.254.169.254/latest/meta-data",
                "https://[::1]/",
                "http://example.com/",
                "file:///etc/passwd",
                "https://denied.example/x",
            )
        ),
    ),
    "addresses the policy denies": ("policy", (("fetch", {"url": "https://vault.example/x"}),)),
    "addresses a rule denies": ("permission", (("fetch", {"url": "https://ruled.example/x"}),)),
}
"""By kind: the gate that refuses, and the calls."""

ASKED = _run(
    "echo x > .git/hooks/pre-commit",
    "cp a .bashrc",
    "tee Makefile",
    "cd .git && touch config",
    "git config core.pager evil",
    "crontab x",
)
"""Commands that may change what is protected: asked about, so where nothing is asked refused to all but the user."""
