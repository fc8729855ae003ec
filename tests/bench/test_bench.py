"""The benchmarks run, and say what they promise to say. How fast anything is, is not tested."""

import math
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bench.__main__ import ROWS
from bench.figure import Figure, as_json, as_table, from_json
from tests.thorough import IS_WANTED

pytestmark = [
    pytest.mark.xdist_group("bench"),  # one run for all of them
    pytest.mark.timeout(120),
]

ROOT = Path(__file__).parents[2]


TALK = ("mail-accept", "mail-end-to-end", "wrapped-tasks", "wrapper-cost", "talk-startup", "others")
A2A = ("a2a-send", "a2a-handler", "a2a-priority", "a2a-subscribers", "a2a-memory")
SHORT = ("a2a-subscribers",)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A run with tiny sizes of all but talking: its table, and its figures by row."""
    return measured(tmp_path_factory, [row for row in ROWS if row not in (*TALK, *A2A)])


@pytest.fixture(scope="module")
def talk(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The same of talking, which takes its time too."""
    return measured(tmp_path_factory, TALK)


@pytest.fixture(scope="module")
def a2a(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The same of A2A, where all but one row are for who has the time."""
    return measured(tmp_path_factory, A2A if IS_WANTED else SHORT)


def measured(factory: pytest.TempPathFactory, rows: Iterable[str]) -> dict[str, Any]:
    output = factory.mktemp("bench") / "figures.json"
    only = [word for row in rows for word in ("--only", row)]
    command = [sys.executable, "-m", "bench", "--quick", "--json", str(output), *only]
    run = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=115)
    figures = msgspec.json.decode(output.read_bytes())["figures"]
    by_row: dict[str, list[dict[str, Any]]] = {}
    for figure in figures:
        by_row.setdefault(figure["row"], []).append(figure)
    return {"table": run.stdout, **by_row}


@pytest.mark.requirement("bench:round-trips")
def test_round_trips_are_set_beside_those_of_both_sdks(report: dict[str, Any]) -> None:
    assert [(f["against"], f["at_least"]) for f in report["round-trips"]] == [
        ("ACP SDK", 3),
        ("MCP SDK", 3),
        ("ACP SDK", 10),
        ("MCP SDK", 10),
    ]
    assert all(f["ratio"] == pytest.approx(f["ours"] / f["theirs"]) for f in report["round-trips"])


@pytest.mark.requirement("bench:demultiplexing")
def test_events_to_64_sessions_are_set_beside_a_bare_loop(report: dict[str, Any]) -> None:
    queued, read = report["demultiplexing"]
    assert queued["theirs"] == read["theirs"] > 0
    assert queued["at_least"] == 0.6


@pytest.mark.requirement("bench:flat")
def test_the_cost_of_an_event_is_shown_from_one_session_to_a_thousand(
    report: dict[str, Any],
) -> None:
    assert [f["what"] for f in report["flat"]] == [
        f"one event, {sessions} sessions" for sessions in (10, 100, 1000)
    ]
    assert {f["at_most"] for f in report["flat"]} == {1.2}


@pytest.mark.requirement("bench:channel", "T-50", "T-51")
def test_a_channel_hop_is_set_beside_a_json_hop_and_copies_nothing(report: dict[str, Any]) -> None:
    small, large, allocated = report["channel"]
    assert small["at_least"] is None
    assert large["at_least"] == 5
    assert allocated["is_met"]  # a count of bytes, not a time


@pytest.mark.requirement("bench:import")
def test_an_import_is_set_beside_that_of_asyncio_and_msgspec(report: dict[str, Any]) -> None:
    seconds, packages = report["import"]
    assert seconds["at_most"] == 1.3
    assert packages["is_met"]


@pytest.mark.requirement("L-30")
def test_sessions_that_were_leave_no_task_and_no_descriptor(report: dict[str, Any]) -> None:
    tasks, descriptors, *memory = report["soak"]
    assert tasks["ours"] == tasks["theirs"]
    assert descriptors["ours"] == descriptors["theirs"]
    assert len(memory) == 2  # too small to judge at this size


@pytest.mark.requirement("bench:cli-startup")
def test_commands_are_set_beside_a_bare_interpreter(report: dict[str, Any]) -> None:
    assert [(f["what"].split(",")[0], f["at_most"]) for f in report["cli-startup"]] == [
        ("bullpen --version", 3),
        ("bullpen tmux-status", 3),
        ("bullpen ls", 12),
    ]


@pytest.mark.requirement("bench:hook-shim")
def test_a_hook_is_set_beside_a_bare_interpreter(report: dict[str, Any]) -> None:
    told, kept = report["hook-shim"]
    assert told["against"] == kept["against"] == "python -I -S -c pass"
    assert told["at_most"] == kept["at_most"] == 3


@pytest.mark.requirement("bench:hook-latency", "bench:screen-latency")
def test_how_late_something_is_told_is_set_beside_the_most_it_may_be(
    report: dict[str, Any],
) -> None:
    for row, most in (("hook-latency", 300), ("screen-latency", 1200)):
        half, nearly_all = report[row]
        assert half["at_most"] is None
        assert (nearly_all["theirs"], nearly_all["at_most"]) == (most, 1)
        assert 0 < half["ours"] <= nearly_all["ours"]


@pytest.mark.requirement("bench:idle-cost")
def test_a_quiet_daemon_is_set_beside_a_hundredth_of_a_core_and_60_mib(
    report: dict[str, Any],
) -> None:
    processor, resident = report["idle-cost"]
    assert (processor["theirs"], processor["unit"]) == (1, "%")
    assert (resident["theirs"], resident["unit"]) == (60, "MiB")


@pytest.mark.requirement("bench:observations-soak", "MEM-2", "MEM-4")
def test_observations_that_were_are_bounded(report: dict[str, Any]) -> None:
    _, resident, held, rate = report["observations-soak"]
    assert resident["at_most"] == 1.02
    assert held["is_met"]
    assert rate["is_met"]


@pytest.mark.requirement("bench:emulation")
def test_emulation_is_set_beside_50_mb_a_second_and_beside_pyte(report: dict[str, Any]) -> None:
    least, pyte, screen = report["emulation"]
    assert (least["theirs"], least["unit"], least["at_least"]) == (50, "MB/s", 1)
    assert pyte["against"] == "pyte"
    assert (screen["theirs"], screen["unit"]) == (5, "ms")


@pytest.mark.requirement("bench:mail")
def test_mail_is_set_beside_what_it_may_take_and_how_long_it_may_block(
    talk: dict[str, Any],
) -> None:
    accepted = {each["what"]: each["theirs"] for each in talk["mail-accept"] if each["at_most"]}
    assert accepted["accepted, one after the other, 50 of 100"] == 5
    assert accepted["accepted, one after the other, 99 of 100"] == 20
    assert accepted["longest block, 100 at a time"] == 20
    least = [each for each in talk["mail-end-to-end"] if each["at_least"]]
    assert [(each["theirs"], each["unit"]) for each in least] == [(3000, "/s")] * 2


@pytest.mark.requirement("bench:wrapped", "talk:exact")
def test_tasks_of_a_wrapped_agent_all_have_their_own_reply(talk: dict[str, Any]) -> None:
    _, *times, own, left = talk["wrapped-tasks"]
    assert [each["theirs"] for each in times] == [50, 50, 100, 100]
    assert own["is_met"]  # counts, not times
    assert left["is_met"]


@pytest.mark.requirement("bench:wrapped")
def test_what_a_wrapper_costs_is_set_beside_what_it_may_cost(talk: dict[str, Any]) -> None:
    limits = {each["what"]: (each["theirs"], each["unit"]) for each in talk["wrapper-cost"]}
    assert limits["resident, a wrapper without a terminal"] == (40, "MiB")
    assert limits["start of the dummy, added"] == (150, "ms")
    assert limits["echo of a key, added, 95 of 100"] == (1, "ms")
    assert limits["stop of a wrapped agent, the longest"] == (1000, "ms")
    assert len(talk["talk-startup"]) == 5


@pytest.mark.requirement("bench:wrapped")
def test_in_a_quick_run_nothing_is_installed(talk: dict[str, Any]) -> None:
    assert "others" not in talk


@pytest.mark.requirement("bench:a2a")
def test_everybody_who_follows_a_task_has_heard_all_of_it(a2a: dict[str, Any]) -> None:
    _, whole, lost, twice = a2a["a2a-subscribers"]
    assert whole["ours"] == whole["theirs"] == 10
    assert lost["ours"] == twice["ours"] == 1


@pytest.mark.requirement("bench:a2a")
@pytest.mark.skipif(not IS_WANTED, reason="`make thorough` tries it")
def test_sending_by_a2a_is_set_beside_the_sdk_and_what_it_may_take(a2a: dict[str, Any]) -> None:
    targets = [each["at_least"] for each in a2a["a2a-send"]]
    assert targets == [None, 5, None, 5, None, 5, None, 5, None]
    assert [each["at_least"] for each in a2a["a2a-handler"]] == targets
    limits = [(each["theirs"], each["unit"]) for each in a2a["a2a-priority"][1:]]
    assert limits == [(5, "ms"), (20, "ms"), (5, "ms"), (20, "ms"), (20, "ms")]
    assert {each["theirs"] for each in a2a["a2a-memory"][1:]} == {160}


def test_the_table_has_a_line_for_every_figure(report: dict[str, Any]) -> None:
    table = report["table"].splitlines()
    figures = [f for row, each in report.items() if row != "table" for f in each]
    assert len(table) == len(figures) + 2
    assert all(f["what"] in line for f, line in zip(figures, table[2:], strict=True))
    assert len({len(line) for line in table}) == 1
    # A quiet daemon may use less of a core in two seconds than the kernel counts.
    assert all(math.isfinite(f["ratio"]) and f["ratio"] >= 0 for f in figures)


def test_the_page_about_them_has_every_row(
    report: dict[str, Any], talk: dict[str, Any], a2a: dict[str, Any]
) -> None:
    page = (ROOT / "docs/benchmarks.md").read_text(encoding="utf-8")
    for row in ROWS:
        assert f"### `{row}`\n" in page
    figures = report | talk | a2a
    for row in figures.keys() - {"table"}:
        for each in figures[row]:
            what = each["what"].partition(" after ")[0]  # a quick soak is of another size
            assert f"\n| {what} " in page


def figure(ours: float, theirs: float, **target: float) -> Figure:
    return Figure(row="r", what="w", ours=ours, theirs=theirs, unit="/s", against="them", **target)


@pytest.mark.parametrize(
    ("measured", "ratio", "is_met"),
    [
        (figure(20, 2, at_least=10), 10, True),
        (figure(19, 2, at_least=10), 9.5, False),
        (figure(13, 10, at_most=1.3), 1.3, True),
        (figure(14, 10, at_most=1.3), 1.4, False),
        (figure(14, 10), 1.4, None),
        (figure(0, 0, at_most=1), 1, True),
        (figure(1, 0, at_most=1), math.inf, False),
    ],
)
def test_a_figure_says_whether_its_target_is_met(
    measured: Figure, ratio: float, is_met: bool | None
) -> None:
    assert measured.ratio == ratio
    assert measured.is_met is is_met
    assert from_json(as_json([measured])) == [measured]
    assert {True: "yes", False: "no", None: " "}[is_met] in as_table([measured]).splitlines()[2]
