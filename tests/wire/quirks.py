"""Peculiarities of clients, how each is served, and the test that is named after it or holds it.

`docs/protocol.md` has the table; `test_coverage.py` writes it there.
"""

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

from acp_agent.protocol.client import DRAWINGS, Drawing

TESTS = Path(__file__).parents[1]


class Quirk(NamedTuple):
    """What a client does, what the agent does about it, and the name of its test without `test_`."""

    clients: str
    does: str
    served: str
    test: str


_VS_CODE = "ACP Client, VSCode ACP Chat"
_JETBRAINS = "jetbrains_says_everything_twice_sets_all_options_before_each_prompt_and_comes_back"
_NEOVIM = "codecompanion_authenticates_first_chooses_by_kind_and_answers_writes_with_null"
_ZED = "zed_opens_several_at_once_with_uuids_sets_defaults_cancels_waits_and_closes"

QUIRKS = (
    # questions
    Quirk(
        "marimo",
        "shows the content of a question only, and sends no `clientInfo`",
        "the command stands first in it",
        "marimo_shows_the_content_of_a_question_only_so_the_command_stands_first_in_it",
    ),
    Quirk(
        f"acpx, {_VS_CODE}",
        "show the title of a question only",
        "it says what changes; a thought before it has the rest",
        "vs_code_extensions_and_acpx_show_the_title_of_a_question_only_so_it_says_what_changes",
    ),
    Quirk(
        "agent-shell, CodeCompanion, Jupyter AI",
        "show title and diff of a question, no texts",
        "warnings are told in a thought before it",
        "emacs_neovim_and_jupyter_show_no_text_of_a_question_so_its_warnings_are_told_before_it",
    ),
    Quirk(
        "any unknown client",
        "may draw no diffs",
        "a change comes as a diff and as text",
        "a_client_that_nobody_knows_gets_a_change_as_a_diff_and_as_text",
    ),
    Quirk(
        "most",
        "do not show what “always” covers",
        "the option's name says it",
        "in_every_kind_of_question_the_names_of_the_options_say_what_always_covers_and_where",
    ),
    Quirk(
        "CodeCompanion",
        "keeps one option a kind, and wants the diff first",
        "ids equal kinds; diffs stand first",
        _NEOVIM,
    ),
    Quirk(
        "CodeCompanion",
        "draws two options of a kind alike, and chooses the last",
        "that for the session is the only one of its kind",
        "codecompanion_draws_every_option_and_keeps_one_a_kind_so_it_gets_one_a_kind",
    ),
    Quirk(
        "CodeCompanion, avante.nvim, ACP Client",
        "leave a question open when the turn is cancelled",
        "the turn ends without an answer",
        "a_cancel_in_a_question_ends_the_turn_and_the_call",
    ),
    Quirk(
        _VS_CODE,
        "answer `cancelled` when the user dismisses a question",
        "that rejects the call, and the turn goes on",
        "a_vs_code_quick_pick_that_is_dismissed_cancels_the_call_and_not_the_session",
    ),
    # cards
    Quirk(
        "acpx",
        "shows `rawOutput` beside the content of a card",
        "a result is told in one of them",
        "acpx_shows_raw_output_beside_the_content_so_a_failure_is_told_once",
    ),
    Quirk(
        "Zed, marimo, Toad, Emacs",
        "show `rawOutput` never, or without content only",
        "the text stands in the content",
        "other_clients_show_the_text_of_a_failure_in_the_content_of_its_card",
    ),
    Quirk(
        "acpx, VSCode ACP Chat, Jupyter AI",
        "draw no embedded terminal",
        "its output is also in `rawOutput`",
        "a_terminal_of_the_editor_stays_in_the_card_and_the_text_goes_to_raw_output",
    ),
    Quirk(
        "acpx, VSCode ACP Chat",
        "print the fences of a card's text",
        "they get none",
        "vscode_acp_chat_and_acpx_print_fences_as_they_are_so_they_get_none",
    ),
    Quirk(
        "CodeCompanion",
        "cuts the title of a card at a colon",
        "such a title stands in backticks",
        "codecompanion_cuts_titles_at_a_colon_so_such_titles_stand_in_backticks",
    ),
    Quirk(
        "Zed",
        "draws a failed card for an update of an unknown call",
        "none is sent",
        "an_id_no_card_was_begun_with_is_not_told_to_the_editor",
    ),
    Quirk(
        "Zed",
        "follows the places of a card, which must be absolute",
        "every path is",
        "every_path_the_editor_gets_is_absolute",
    ),
    Quirk(
        "ACP Client",
        "draws no diffs",
        "edits go through `fs/write_text_file`, which shows the file",
        "an_edit_goes_through_the_editor_and_shows_its_diff",
    ),
    Quirk(
        "Zed",
        "draws the kind `think` as a thought",
        "the call that shows a plan has the kind `other`",
        "the_card_of_a_plan_is_no_second_thought_beside_the_plan",
    ),
    Quirk(
        "Jupyter AI; CodeCompanion on load",
        "join all text of a turn",
        "a further message begins with a blank line",
        "clients_that_show_one_message_a_turn_show_the_messages_of_a_turn_as_paragraphs",
    ),
    # terminals
    Quirk(
        f"{_VS_CODE}, Jupyter AI",
        "join or split the words of a command",
        "it is a script with a plain path; the command is a comment behind it",
        "the_command_reaches_the_terminal_as_one_program_one_plain_path_and_a_title",
    ),
    Quirk(
        "Zed, Toad, ACP Client",
        "show program and arguments as the title of a terminal",
        "the command stands there, without secrets",
        "clients_that_show_program_and_arguments_show_the_command_without_secrets",
    ),
    Quirk(
        "Toad, ACP Client, Qt Creator",
        "end the shell alone, or nothing, at `terminal/kill`",
        "the agent ends the rest",
        "a_cancelled_command_ends_with_all_it_started_in",
    ),
    Quirk(
        "Zed",
        "drops an update that names a released terminal",
        "create, embed, wait, release; none in a replay",
        "a_command_runs_in_the_editors_terminal_and_keeps_the_order_of_its_life",
    ),
    Quirk(
        "Zed",
        "draws terminals of the agent (`_meta.terminal_output`)",
        "used where it has no terminal of its own",
        "an_editor_that_draws_agent_terminals_gets_one",
    ),
    Quirk(
        "acpx",
        "refuses terminals and files with -32603 unless `--approve-all`",
        "the call fails and the turn goes on",
        "a_client_that_refuses_a_terminal_is_obeyed",
    ),
    Quirk(
        "Toad",
        "runs commands on a pty",
        "CRLF is a line end",
        "toad_runs_commands_on_a_pty_whose_line_ends_are_read_as_such",
    ),
    Quirk(
        "WebStorm, Emacs, Neovim, marimo",
        "have no terminals",
        "the agent runs the command; its output is the content",
        "clients_without_terminals_get_the_output_of_a_command_as_text",
    ),
    # files
    Quirk(
        "Toad, CodeCompanion, avante.nvim",
        "answer a write with null",
        "it counts as done",
        "a_write_that_is_answered_null_is_a_success",
    ),
    Quirk(
        "Zed",
        "formats a file as it saves it",
        "the model is told, and its next edit is made",
        "zed_formats_what_it_saves_so_the_model_is_told_and_its_next_edit_is_made",
    ),
    Quirk(
        "Zed",
        "does not serve files outside its project",
        "they are read from disk",
        "where_the_editor_cannot_read_another_backend_is_asked",
    ),
    Quirk(
        "Emacs, CodeCompanion",
        "never answer a request that they do not know",
        "one wait, then another way",
        "an_editor_that_never_answers_a_read_costs_one_wait",
    ),
    # sessions
    Quirk("Zed", "drops updates of a session before it knows it", "commands are told again", _ZED),
    Quirk(
        "Zed", "sends ids as UUIDs, opens several sessions at once, sets the user's defaults", "ids are echoed", _ZED
    ),
    Quirk("Zed", "holds the next prompt until a cancelled one is answered", "a cancel is answered at once", _ZED),
    Quirk(
        "Zed, ACP Client",
        "ignore modes where there are options",
        "both are sent and agree",
        "set_mode_announces_the_mode_and_the_option_that_mirrors_it",
    ),
    Quirk(
        "JetBrains IDEs",
        "initialize and open a session twice, add `type`, set every option before a prompt",
        "cheap, and silent",
        _JETBRAINS,
    ),
    Quirk("JetBrains IDEs", "send the proxy's password with `initialize`", "it is in no log", _JETBRAINS),
    Quirk("JetBrains IDEs", "hand over a server that a container does not have", "the session opens", _JETBRAINS),
    Quirk(
        "CodeCompanion",
        "waits 20 seconds for an answer",
        "MCP servers start in the background",
        "a_call_waits_for_the_server_of_its_tool_that_starts_slowly",
    ),
    Quirk("CodeCompanion", "calls `authenticate` with the first method", "it succeeds at once", _NEOVIM),
    Quirk(
        "Emacs",
        "reads `false` as support",
        "what is not served is left out",
        "a_capability_that_is_missing_is_left_out_because_some_clients_read_false_as_support",
    ),
    Quirk(
        "Emacs, avante.nvim",
        "set the model by `session/set_model`",
        "it is served",
        "older_clients_set_the_model_by_a_method_of_its_own",
    ),
    Quirk(
        "Jupyter AI",
        "puts a note before the first prompt",
        "a slash command behind it is one",
        "only_the_very_beginning_of_a_prompt_is_a_command_but_for_the_note_of_jupyter",
    ),
    Quirk(
        "Jupyter AI",
        "hands over an HTTP server on new and on load",
        "the session opens also without it",
        "jupyter_hands_over_an_http_server_on_new_and_on_load_and_the_session_opens_without_it",
    ),
    Quirk(
        "marimo",
        "names files by bare paths and embeds texts",
        "both are read",
        "marimo_names_files_by_bare_paths_and_embeds_texts",
    ),
    Quirk(
        "acpx, Jupyter AI",
        "go on with a session in another process",
        "it is stored at once and loaded cold",
        "the_model_knows_the_conversation_after_a_rest_a_load_and_in_another_process",
    ),
    Quirk(
        _VS_CODE,
        "start a process for each chat",
        "a session belongs to one of them at a time",
        "a_session_is_one_processs_at_a_time_and_goes_on_when_that_one_was_killed",
    ),
    Quirk(
        "Toad",
        "answers notifications with an error of id null",
        "it is ignored",
        "toad_answers_notifications_with_errors_of_id_null_which_end_nothing",
    ),
    Quirk(
        "acpx, marimo, Jupyter AI, Toad",
        "end the agent by closing stdin, SIGTERM, SIGINT, SIGHUP",
        "it ends with its children",
        "a_local_command_dies_with_the_agent_and_so_does_its_child",
    ),
    Quirk(
        "agent-shell, CodeCompanion, acpx, `acp-agent run`",
        "show nothing, or a line in the minibuffer, of what comes while no prompt runs",
        "scheduled prompts do not fire by themselves; the user is told, and `/schedule run N` runs one",
        "clients_that_show_nothing_outside_of_prompts_are_told_what_is_due_instead",
    ),
    Quirk("all", "send ids from 0, from 1 or as texts", "they are echoed", "ids_are_echoed_as_they_came"),
    Quirk(
        "the registry's check",
        "wants a login and reads the first line on stdout",
        "the first line is the answer",
        "the_first_line_answers_initialize_with_a_way_to_log_in_without_network_or_key",
    ),
)


@cache
def known_tests() -> frozenset[str]:
    """The names of all tests, without `test_`."""
    found = re.compile(r"^(?:async )?def test_(\w+)\(", re.MULTILINE)
    return frozenset(name for path in TESTS.rglob("test_*.py") for name in found.findall(path.read_text("utf-8")))


_INTRODUCTION = """\
## Clients

`protocol/client.py` says what a client draws, by the name in its `clientInfo`, and every other module asks it. An
unknown client gets what works everywhere. `tests/wire/quirks.py` has this section; every row names its test."""


def section() -> str:
    """The part of the page about clients."""
    named = [("any other", Drawing()), *DRAWINGS.items()]
    drawn = [
        f"| {name} | {_question(each)} | {'Markdown' if each.markdown else 'plain text'}"
        f"{', and `rawOutput`' if each.raw_output else ''}{'' if each.whole_titles else ', titles to a colon'} |"
        for name, each in named
    ]
    rows = [f"| {quirk.clients} | {quirk.does} | {quirk.served} | `{quirk.test}` |" for quirk in QUIRKS]
    return "\n".join(
        [
            *(_INTRODUCTION, "", "| client | shows of a question | draws in a card |", "|---|---|---|", *drawn, ""),
            *("| clients | what they do | served | test |", "|---|---|---|---|", *rows, ""),
        ]
    )


def _question(drawing: Drawing) -> str:
    parts = {"title": drawing.question_titles, "texts": drawing.question_texts, "diffs": drawing.question_diffs}
    return ", ".join(part for part, shown in parts.items() if shown)
