"""Each promise that a fast path could skip, and the tests that hold it.

Who makes something faster looks here for what must stay. Who renames or replaces a test renames it here as well, and
says in the commit which test holds the promise now.
"""

import ast
from pathlib import Path

from tests.rows import each_row
from tests.sources import tree_of

TESTS = Path(__file__).parent

PROMISES: dict[str, dict[str, tuple[str, ...]]] = {
    "what the user has seen is stored before it is shown": {
        "e2e/test_promises.py": (
            "test_every_update_is_stored_when_the_editor_reads_it_and_each_result_is_audited",
        ),
        "unit/session/test_event_queue.py": (
            "test_what_belongs_to_the_conversation_is_kept_before_it_is_sent",
            "test_a_cancelled_turn_is_answered_when_its_end_is_kept",
            "test_how_full_the_window_is_goes_with_what_comes_next_and_is_never_sent_before_it_is_kept",
        ),
    },
    "a prompt is stored before a model is asked": {
        "unit/session/test_turn_engine.py": ("test_no_model_is_asked_before_the_prompt_is_stored",),
    },
    "a call that changes anything is on record before it begins": {
        "unit/session/test_event_queue.py": ("test_a_call_that_changes_anything_is_on_record_before_it_begins",),
        "unit/execution/test_audit.py": (
            "test_what_changes_something_does_not_run_while_nothing_can_be_recorded",
        ),
    },
    "the audit has a call before its result is returned, also of one that was cancelled or answered from memory": {
        "unit/execution/test_audit.py": (
            "test_the_record_is_there_before_the_result",
            "test_a_call_that_is_cancelled_is_on_record",
        ),
        "e2e/test_output_cache.py": (
            "test_the_second_of_two_equal_reads_is_kept_and_shows_like_the_first_until_a_command_ran",
        ),
    },
    "what is committed in groups survives a kill": {
        "unit/store/test_session_deaths.py": (
            "test_killed_writers_leave_every_change_they_acknowledged_whole_and_once",
        ),
        "unit/store/test_audit_deaths.py": ("test_any_row_of_deaths_leaves_a_file_that_verifies",),
        "e2e/test_killed_turns.py": (
            "test_whenever_an_agent_is_killed_the_next_one_has_all_that_was_told_once_and_every_file_is_whole",
        ),
        "unit/session/test_event_queue.py": (
            "test_only_what_must_survive_a_power_cut_is_synced",
            "test_what_is_written_at_the_end_of_a_turn_survives_a_power_cut",
        ),
    },
    "no piece with a secret is shown or stored, however it was cut": {
        "e2e/test_canaries.py": (
            "test_a_planted_secret_is_in_nothing_the_agent_says_or_leaves",
            "test_a_secret_the_user_types_is_in_nothing_that_is_kept_of_the_session",
        ),
        "unit/session/test_event_queue.py": (
            "test_a_secret_that_came_in_pieces_does_not_stay_in_what_is_kept",
            "test_a_secret_in_pieces_with_which_a_turn_ends_does_not_stay_either",
            "test_a_diff_is_shown_as_it_is_and_kept_without_secrets",
        ),
    },
    "every gate judges every call by the configuration of that moment": {
        "unit/execution/test_dyn.py": (
            "test_every_gate_reads_the_same_facts_of_a_call_and_is_asked_once",
            "test_every_gate_that_did_not_end_the_call_hears_of_its_result_the_last_one_first",
            "test_a_fault_in_a_gate_costs_the_call_and_the_gates_before_it_hear_of_it",
        ),
        "e2e/test_reload.py": (
            "test_a_ban_between_two_prompts_holds_for_the_second_and_a_broken_file_lifts_nothing",
            "test_a_ban_written_during_a_turn_holds_for_the_next_call_and_not_for_the_one_under_way",
        ),
        "e2e/test_permissions.py": ("test_allowing_once_is_asked_again",),
        "unit/gates/test_every_path.py": (
            "test_a_hostile_call_is_refused_alike_on_every_path",
        ),
        "unit/gates/test_rights.py": ("test_no_way_raises_the_rights_of_a_call",),
    },
    "what a cache answers is what the tool would answer": {
        "unit/execution/test_cache.py": (
            "test_any_mutating_call_empties_it_however_it_ends",
            "test_a_read_that_began_before_a_change_is_not_kept_after_it",
            "test_a_file_is_read_again_when_its_stamp_is_another",
        ),
        "e2e/test_output_cache.py": (
            "test_what_somebody_else_changes_between_two_reads_is_seen_even_with_the_times_set_back",
        ),
    },
    "an answer to session/new that was kept is corrected if it is wrong, and its session is kept": {
        "e2e/test_known_answers.py": (
            "test_what_is_different_from_a_known_answer_is_told_and_in_force",
            "test_nothing_is_known_once_a_file_or_a_variable_says_something_else",
            "test_a_known_answer_is_given_at_once_and_its_session_is_kept_even_if_the_process_dies_then",
        ),
    },
    "of what was cancelled or ended nothing is left": {
        "e2e/test_cancel.py": (
            "test_a_cancel_while_the_model_streams_closes_its_connection",
            "test_a_cancel_while_the_editors_terminal_runs_kills_and_releases_it",
            "test_a_cancel_of_a_local_command_kills_its_whole_tree",
            "test_every_call_of_a_cancelled_message_gets_its_final_update",
            "test_a_late_allowance_after_a_cancel_runs_nothing",
        ),
        "e2e/test_killed.py": ("test_all_that_a_command_started_is_gone_and_nothing_else",),
        "unit/execution/test_dyn.py": (
            "test_a_terminal_is_given_back_after_the_last_update_only",
            "test_a_cancelled_call_is_finished_and_cleaned_up_before_the_cancellation_goes_on",
        ),
        "unit/protocol/test_peer.py": ("test_a_request_behind_updates_waits_for_them_as_long_as_it_may",),
    },
    "a load shows what was shown": {
        "e2e/test_replay.py": ("test_whoever_loads_a_session_wherever_sees_what_was_seen_live",),
        "e2e/test_cancel.py": ("test_what_a_cancelled_command_had_printed_stays_in_its_card_and_is_told_again",),
    },
    "what changed since the model saw it is noticed, and what a call changed can be taken back": {
        "unit/workspace/test_seen_files.py": (
            "test_a_file_that_was_rewritten_or_deleted_has_changed",
            "test_a_change_within_the_same_tick_of_the_clock_is_found",
            "test_a_link_on_the_way_to_a_file_that_leads_elsewhere_now_is_a_change",
        ),
        "unit/workspace/test_changed_files.py": ("test_what_the_kernel_tells_is_what_a_walk_finds",),
        "unit/workspace/test_undo.py": (
            "test_undo_restores_byte_for_byte_or_refuses_with_the_difference",
            "test_what_is_noted_of_a_call_after_the_next_turn_began_counts_to_its_own_turn",
        ),
    },
    "what a turn costs does not grow with the sessions that are kept": {
        "unit/store/test_sessions.py": (
            "test_no_statement_looks_at_the_rows_of_all_conversations",
            "test_the_lists_use_their_indexes_and_sort_only_damaged_sessions",
        ),
    },
}  # fmt: skip


HELD = [(promise, file, test) for promise, files in PROMISES.items() for file, names in files.items() for test in names]


@each_row("promise, file, test", HELD, [test for _, _, test in HELD])
def test_the_test_that_holds_a_promise_is_there_and_runs(promise: str, file: str, test: str):
    found = next((node for node in tree_of(TESTS / file).body if getattr(node, "name", "") == test), None)
    assert isinstance(found, ast.FunctionDef | ast.AsyncFunctionDef), f"no test holds any more that {promise}"
    marks = " ".join(ast.unparse(mark) for mark in found.decorator_list)
    assert not any(f"mark.{mark}" in marks for mark in ("skip(", "xfail", "soak")), f"it does not run always: {marks}"


def test_each_promise_is_held_by_a_test():
    assert all(files and all(files.values()) for files in PROMISES.values())
