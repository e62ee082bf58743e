"""The stopwatch itself: that every scenario can be measured, not how fast anything is."""

import json
import random
import shutil
import time
from types import SimpleNamespace

import anyio.to_thread
import pytest

from tests.bench import __main__ as bench
from tests.bench import compare, frames, life, profile, sampler
from tests.bench import scale as bench_scale
from tests.bench.agent import TREE, Agent
from tests.sizes import sized


@pytest.mark.soak  # starts fifteen agents, which takes seconds
def test_every_scenario_gives_a_row_with_samples_and_the_table_shows_it():
    rows = [
        *bench.starts(1),
        bench.tool_calls("reads", 6, "read", [{"path": "0.txt"}, {"path": "1.txt"}], 1),
        bench.tool_calls("shells", 12, "bash", [{"command": "true 0"}, {"command": "true 1"}], 1),
        bench.cancel_of_model(1),
        bench.cancel_of_command(2),
        bench.endings(1),
        *(bench.Row(*sample) for sample in bench.file_tools.crowded(60)),
    ]
    assert all(sample > 0 for row in rows for sample in (*row.samples, *row.floor))
    assert [len(row.samples) for row in rows] == [1, 1, 1, 1, 1, 1, 1, 2, 1, 1, 1]
    table = bench.table(rows).splitlines()
    assert len(table) == len(rows) + 1
    assert all(row.what in line for row, line in zip(rows, table[1:], strict=True))
    json.dumps([bench.asdict(row) for row in rows])


def test_every_file_tool_is_measured_beside_its_floor_where_there_is_one():
    rows = [bench.Row(*sample) for sample in bench.file_tools.measured(files=60, megabytes=1, rounds=2)]
    assert [len(row.samples) for row in rows] == [2] * 4
    assert all(len(row.floor) in (0, 2) for row in rows)
    assert all(sample > 0 for row in rows for sample in (*row.samples, *row.floor))
    assert all(row.what in line for row, line in zip(rows, bench.table(rows).splitlines()[1:], strict=True))


def test_noting_changes_for_undo_is_measured():
    rows = [bench.Row(*sample) for sample in bench.undo.measured(files=100, rounds=2)]
    assert [len(row.samples) for row in rows] == [1, 6, 6, 6, 2]
    assert all(sample > 0 for row in rows for sample in row.samples)


@pytest.mark.soak  # starts the SDKs of two vendors, which takes seconds
def test_talking_to_a_model_is_measured_beside_the_official_sdks():
    rows = [bench.Row(*sample) for sample in bench.models.measured(rounds=1, calls=2)]
    assert [len(row.samples) for row in rows] == [1] * 8
    assert all(sample > 0 for row in rows for sample in (*row.samples, *row.floor))


@pytest.mark.soak  # fills databases with conversations, which takes seconds
def test_what_keeping_conversations_costs_is_measured():
    measured = bench.sessions.measured(kept=120, turns=3, opened=2, resting=6, rounds=1, busy=3)
    rows = {sample[0]: bench.Row(*sample) for sample in measured}
    assert all(sample != 0 for row in rows.values() for sample in row.samples)
    assert rows["session/list of 120: a page on the way to the end"].median > 0
    assert rows["  frames of it"].samples == [12.0]
    assert len(rows["prompt to the model's request"].samples) == 4
    share, efficiency = "3 busy sessions, 200 ms model: the model's part, 20 turns", "  parallel efficiency, 20 turns"
    assert 0 < rows[share].median < min(100, rows[efficiency].median)
    assert sum(row.aim is not None for row in rows.values()) == 4


@pytest.mark.soak  # starts a dozen agents, which takes seconds
def test_what_must_not_grow_is_measured():
    samples = [
        *bench_scale.long(turns=12, ends=4),
        *bench_scale.kept(sessions=80, rounds=1),
        *bench_scale.files(many=60, few=20, rounds=1),
    ]
    rows = [bench.Row(*sample) for sample in samples]
    assert sum(row.what == "  the ratio" for row in rows) > 30
    assert all(sample > 0 for row in rows if row.unit == "ms" for sample in (*row.samples, *row.floor))


def test_the_frames_between_a_prompt_and_its_process_are_counted():
    cold, _, warm, piped = frames.profile(rest=sized(0.1, 0.3))
    assert cold["chain"][0].startswith("protocol/peer.py:")
    assert cold["chain"][-1].startswith("workspace/")
    assert len(cold["chain"]) == len(warm["chain"])
    assert set(warm["call"]) < set(warm["turn"])
    assert cold["parses"] == 0, "plain words need no parser"
    assert piped["parses"] == 1
    assert all(number > 0 for _, number, _ in frames.rows(cold, warm, piped))


def test_an_agent_beside_its_sampler_settles_though_it_never_rests(monkeypatch):
    monkeypatch.setattr(time, "sleep", lambda _seconds: None)
    used = iter([1.0, 1.4, 1.8, 1.82, 1.84])
    Agent.settle(SimpleNamespace(cpu=used.__next__))
    assert [*used] == [1.84], "until the work is over, and no longer"


def figures(seed: int, slower: float = 0.0) -> list[dict[str, float]]:
    """Return rounds as a busy machine gives them: ten rows of 250 ms, give or take, and one in twenty of double."""
    draw = random.Random(seed)
    return [
        {f"row {row}": draw.gauss(250, 10) * draw.choice([1] * 19 + [2]) + slower for row in range(10)}
        for _ in range(20)
    ]


@pytest.fixture
def fewer_resamples(monkeypatch):
    """A tenth of them says the same of figures that are clear."""
    monkeypatch.setattr(compare, "_RESAMPLES", sized(1_000, compare._RESAMPLES))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.usefixtures("fewer_resamples")
def test_a_comparison_of_equal_revisions_names_no_row(seed):
    assert {row.verdict for row in compare.compared(figures(seed), figures(seed + 100))} == {"no difference"}


@pytest.mark.usefixtures("fewer_resamples")
def test_a_comparison_names_the_rows_that_a_change_made_slower_or_faster():
    slower = compare.compared(figures(1), figures(2, slower=50))
    assert {row.verdict for row in slower} == {"MORE"}
    faster = compare.compared(figures(1, slower=50), figures(2))
    assert {row.verdict for row in faster} == {"less"}
    assert all(row.low < row.ratio < row.high and row.name in compare.table(faster) for row in faster)


@pytest.mark.soak  # forty lives of agents
@pytest.mark.timeout(600)
def test_a_sleep_of_20_ms_that_is_planted_in_the_start_is_found(tmp_path):
    for name in ("acp_agent", "requirements.lock"):
        copy = shutil.copytree if (TREE / name).is_dir() else shutil.copy
        copy(TREE / name, tmp_path / name)
    boot = tmp_path / "acp_agent" / "boot.py"
    source = boot.read_text()
    planted = "    import time\n    time.sleep(0.02)\n    answer = {"
    boot.write_text(source.replace("    answer = {", planted, 1))
    rows = {row.name: row for row in compare.compared(*compare.interleaved(tmp_path, ["start"], 20))}
    assert rows["spawn to initialize"].verdict == "less"
    assert rows["memory after the first turn"].verdict == "no difference"


@pytest.mark.soak  # a whole life takes seconds
def test_a_life_has_a_figure_for_every_part():
    names = " ".join(life.lived())
    assert all(
        name in names for name in (*life.TOOLS, "warm turn", "pieces", "cancel", "session/new", "load", "memory")
    )


def test_code_belongs_to_its_part_of_ours_to_its_library_or_to_python():
    ours = f"{sampler.ROOT}acp_agent/gates/shell/command.py"
    assert sampler.package(ours) == "acp_agent.gates"
    assert sampler.package(ours, deep=True) == "acp_agent.gates.shell.command"
    assert sampler.package(f"{sampler.ROOT}acp_agent/app.py") == "acp_agent.app"
    assert sampler.package(anyio.to_thread.__file__) == "anyio"
    assert sampler.package(json.decoder.__file__) == "Python: json"
    assert sampler.package("<frozen posixpath>") == "Python: posixpath"
    assert sampler.package("<frozen importlib._bootstrap>") == "Python: import of modules"


@pytest.mark.soak  # three lives
def test_the_profile_says_of_each_part_which_packages_took_its_time_and_memory():
    page = profile.page(["turn", "read"])
    titles = [line for line in page.splitlines() if line.startswith("#")]
    for part in ("spawn to initialize", "warm turn", "tool read"):
        assert any(title.startswith(f"### {part}: ") for title in titles)
    for package in ("acp_agent.session", "anyio", "Python: asyncio"):
        assert page.count(f"| {package} |") > 1
