"""The page about the command line has every command, option, exit code and word, and no other."""

import re
from pathlib import Path

import click
import pytest

from bullpen.cli import speaking, wait, watch
from bullpen.cli.group import COMMANDS
from bullpen.model.appearance import ACTIVITIES, EVIDENCE
from bullpen.model.mailing import RECEIPTS, TASKS
from tests.cli.test_main import every_command

PAGE = (Path(__file__).parents[2] / "docs/reference/cli.md").read_text(encoding="utf-8")
SECTION = re.compile(r"^### `bullpen (.+?)`\n(.*?)(?=^### |\Z)", re.MULTILINE | re.DOTALL)
SECTIONS: dict[str, str] = dict(SECTION.findall(PAGE))
PATHS = {" ".join(path): command for path, command in every_command() if path}


def test_every_command_has_its_section() -> None:
    assert set(SECTIONS) == set(PATHS)


@pytest.mark.parametrize("name", [name for name in PATHS if name != "list-panes"])
def test_a_section_has_every_exit_code_and_option(name: str) -> None:
    command, section = PATHS[name], SECTIONS[name]
    codes = (command.help or "").partition("Exit codes:")[2]
    said = re.findall(r"^\s+(\d+)  (.+)$", codes, re.MULTILINE)
    assert re.findall(r"^\| (\d+) \| (.+) \|$", section, re.MULTILINE) == said
    options = {
        option
        for each in command.params
        if isinstance(each, click.Option) and not each.hidden
        for option in (*each.opts, *each.secondary_opts)
        if option.startswith("--") and option != "--socket-path"
    }
    listed = section.partition("Options:")[2].partition("\n")[0]
    assert set(re.findall(r"--[a-z-]+", listed)) == options


@pytest.mark.requirement("TR-60")
def test_the_exit_codes_of_waiting_are_the_ones_it_has() -> None:
    codes = dict(re.findall(r"^\| (\d+) \| (.+) \|$", SECTIONS["wait"], re.MULTILINE))
    assert codes[str(wait.TIMEOUT)] == "the time is over and it is not so"
    assert codes[str(wait.GONE)] == "the agent is gone, or was not there"
    assert wait.TIMEOUT == watch.TIMEOUT


def test_every_symbol_and_mark_is_explained() -> None:
    for activity, look in ACTIVITIES.items():
        assert re.search(rf"^\| `{re.escape(look.symbol)}` \| .*`{activity}`", PAGE, re.MULTILINE)
    for mark in EVIDENCE.values():
        assert f"`{mark}`" in PAGE


def test_every_symbol_of_messages_and_tasks_is_explained() -> None:
    table = PAGE.partition("| symbol | steps of a message |")[2].partition("\n\n")[0]
    rows = {symbol: cells for symbol, *cells in re.findall(r"\| `(.)` \| (.*?)\|(.*?)\|", table)}
    shown = [
        *((0, str(state), look.symbol) for state, look in RECEIPTS.items()),
        *((1, str(state), look.symbol) for state, look in TASKS.items()),
    ]
    for column, state, symbol in shown:
        assert [each for each, cells in rows.items() if f"`{state}`" in cells[column]] == [symbol]


def test_the_exit_codes_of_what_sends_are_the_same_everywhere() -> None:
    for name in ("send", "ask"):
        codes = dict(re.findall(r"^\| (\d+) \| (.+) \|$", SECTIONS[name], re.MULTILINE))
        assert codes[str(speaking.TIMEOUT)].startswith("the time is over")
        assert codes[str(speaking.NOBODY)].startswith("there is no such agent")
        assert codes[str(speaking.REFUSED)].startswith("refused")
        assert codes[str(speaking.ENDED)].startswith("it failed, expired or was given up")
    assert speaking.TIMEOUT == wait.TIMEOUT


def test_only_what_is_for_people_is_in_the_menu() -> None:
    assert [name for name, words in COMMANDS.items() if not words] == ["source"]
