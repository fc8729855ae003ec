"""Going to an agent: from where one is, to whom, and by which command."""

import os
import shlex
import subprocess
from collections.abc import Iterable, Mapping

from bullpen.api.errors import NobodyError, TmuxFailedError
from bullpen.model.appearance import one_line
from bullpen.model.places import jump_words, place_of, place_order
from bullpen.model.views import AgentState, PanePlace

__all__ = ["go_to_pane", "next_agent", "pane_of", "server_of"]

TMUX_SECONDS = 5.0


def server_of(environment: Mapping[str, str]) -> str:
    """Return the socket of the tmux server one is in; empty outside of tmux."""
    return environment.get("TMUX", "").rpartition(",")[0].rpartition(",")[0]


def pane_of(environment: Mapping[str, str]) -> str:
    """Return the pane one is in; empty outside of tmux.

    What tmux runs at a key has no `TMUX_PANE`, so it is asked. It waits for tmux: not in an event
    loop.
    """
    server, pane_id = server_of(environment), environment.get("TMUX_PANE", "")
    if pane_id or not server:
        return pane_id
    words = ["tmux", "-S", server, "display-message", "-p", "#{pane_id}"]
    try:
        done = subprocess.run(
            words, check=True, capture_output=True, timeout=TMUX_SECONDS, env=dict(environment)
        )
    except (OSError, subprocess.SubprocessError):
        return ""  # then the first agent is the next
    return done.stdout.decode(errors="replace").strip()


def next_agent(agents: Iterable[AgentState], server: str, pane_id: str) -> AgentState:
    """Return the agent behind a pane, in the order of `bullpen ls`; after the last, the first.

    Raises:
        NobodyError: none of them is in a pane.
    """
    agents = list(agents)
    ordered = sorted((each for each in agents if each.pane and each.place), key=place_order)
    if not ordered:
        raise NobodyError([(each.name, place_of(each)) for each in agents])
    for number, agent in enumerate(ordered, start=1):
        assert agent.pane is not None
        assert agent.place is not None
        if agent.pane.pane_id == pane_id and _is_same_socket(agent.place.tmux_socket, server):
            return ordered[number % len(ordered)]
    return ordered[0]


def go_to_pane(pane_id: str, place: PanePlace, environment: Mapping[str, str]) -> str:
    """Go to a pane if one is in tmux on its server; else return the command that attaches there.

    It waits for tmux: not in an event loop.

    Raises:
        TmuxFailedError: tmux could not go there.
    """
    if not _is_same_socket(place.tmux_socket, server_of(environment)):
        return shlex.join(jump_words(pane_id, place, attach=True))
    words = jump_words(pane_id, place, attach=False)
    try:
        subprocess.run(
            words, check=True, capture_output=True, timeout=TMUX_SECONDS, env=dict(environment)
        )
    except FileNotFoundError as error:
        raise TmuxFailedError("there is no tmux on the PATH") from error
    except subprocess.TimeoutExpired as error:
        raise TmuxFailedError(f"tmux did not answer in {TMUX_SECONDS:g} s") from error
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode(errors="replace").strip()
        raise TmuxFailedError(one_line(f"tmux could not go there: {said}")) from error
    return ""


def _is_same_socket(one: str, other: str) -> bool:
    return bool(other) and os.path.realpath(one) == os.path.realpath(other)
