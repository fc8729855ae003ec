"""A pane id that comes back is somebody else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bullpen.terminal.tmux.generations import MOST_FORGOTTEN, PaneGenerations, PaneInstance
from bullpen.terminal.tmux.target import ServerIdentity
from tests.terminal.tmux.listed import SERVER, pane

RESTARTED = ServerIdentity(11, 1500)


def test_a_pane_that_stays_stays_the_same() -> None:
    generations = PaneGenerations()
    first = generations.update([pane()], now=1.0)
    again = generations.update([pane(title="new", current_command="claude")], now=2.0)
    assert again == first == {"%3": PaneInstance(SERVER, "%3", 1, 1.0, 300)}
    assert generations.get("%3") is again["%3"]


@pytest.mark.requirement("TMX-7", "BND-8", "TR-12")
def test_a_respawned_pane_is_a_new_generation() -> None:
    generations = PaneGenerations()
    generations.update([pane()], now=1.0)
    assert generations.update([pane(pane_pid=301)], now=2.0)["%3"] == PaneInstance(
        SERVER, "%3", 2, 2.0, 301
    )


@pytest.mark.requirement("TMX-7", "BND-8", "TR-12", "Q3")
def test_an_id_of_another_server_is_a_new_generation_even_with_the_same_process_id() -> None:
    generations = PaneGenerations()
    generations.update([pane()], now=1.0)
    [instance] = generations.update([pane(server=RESTARTED)], now=2.0).values()
    assert (instance.generation, instance.birth, instance.server) == (2, 2.0, RESTARTED)


@pytest.mark.requirement("TMX-7", "BND-8")
def test_an_id_that_was_gone_for_a_while_is_a_new_generation() -> None:
    generations = PaneGenerations()
    generations.update([pane()], now=1.0)
    generations.update([], now=2.0)
    assert generations.get("%3") is None
    [instance] = generations.update([pane(server=RESTARTED)], now=3.0).values()
    assert (instance.generation, instance.birth) == (2, 3.0)


def test_a_pane_whose_process_ended_is_the_same_until_it_is_respawned() -> None:
    generations = PaneGenerations()
    first = generations.update([pane()], now=1.0)
    assert generations.update([pane(is_dead=True, pane_pid=0)], now=2.0) == first
    assert generations.update([pane(pane_pid=301)], now=3.0)["%3"].generation == 2


@pytest.mark.requirement("TR-13")
def test_a_pane_listed_for_several_sessions_is_one() -> None:
    generations = PaneGenerations()
    assert len(generations.update([pane(), pane(session_id="$9")], now=1.0)) == 1


@pytest.mark.requirement("Q3")
def test_what_was_known_before_a_restart_of_ours_is_recognised_or_counted_on_from() -> None:
    known = [PaneInstance(SERVER, "%3", 7, 1.0, 300), PaneInstance(SERVER, "%4", 2, 1.0, 400)]
    instances = PaneGenerations(known).update([pane("%3"), pane("%4", server=RESTARTED)], now=9.0)
    assert instances["%3"] == known[0]
    assert (instances["%4"].generation, instances["%4"].birth) == (3, 9.0)


def test_what_is_remembered_of_panes_that_are_gone_is_bounded_and_no_generation_repeats() -> None:
    generations = PaneGenerations()
    generations.update([pane("%0")], now=1.0)
    for number in range(1, MOST_FORGOTTEN + 5):
        generations.update([pane(f"%{number}")], now=1.0)
    assert len(generations._gone) <= MOST_FORGOTTEN
    [instance] = generations.update([pane("%0", server=RESTARTED)], now=2.0).values()
    assert instance.generation == 2


lives = st.tuples(st.sampled_from([SERVER, RESTARTED]), st.integers(1, 3))


@given(st.lists(st.dictionaries(st.sampled_from(["%1", "%2"]), lives)))
def test_generations_only_grow_and_change_with_the_life_of_the_pane(
    listings: list[dict[str, tuple[ServerIdentity, int]]],
) -> None:
    generations = PaneGenerations()
    last: dict[str, tuple[PaneInstance, tuple[ServerIdentity, int], bool]] = {}
    for now, listing in enumerate(listings):
        found = generations.update(
            [pane(key, server=server, pane_pid=pid) for key, (server, pid) in listing.items()],
            now=float(now),
        )
        for key, life in listing.items():
            if key in last:
                before, life_before, was_there = last[key]
                is_same = was_there and life_before == life
                assert found[key].generation == before.generation + (not is_same)
            last[key] = (found[key], life, True)
        for key in last.keys() - listing.keys():
            last[key] = (*last[key][:2], False)
