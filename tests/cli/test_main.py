"""The command line is quick to start, loads what it needs, and says clearly what is wrong."""

import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from click.testing import CliRunner

from bullpen.cli.group import COMMANDS, bullpen, run
from bullpen.cli.version import VERSION

MODULES = """
import sys
sys.argv = ["bullpen", *{arguments!r}]
from bullpen.cli.main import main
try:
    code = main()
except SystemExit as exit_:
    code = exit_.code
print("\\n" + " ".join(sorted(sys.modules)))
sys.exit(code)
"""


def modules_after(*arguments: str) -> set[str]:
    program = MODULES.format(arguments=list(arguments))
    output = subprocess.run(
        [sys.executable, "-I", "-c", program], check=True, capture_output=True, text=True
    ).stdout
    return set(output.splitlines()[-1].split())


def test_the_version_is_the_packages() -> None:
    assert metadata.version("bullpen") == VERSION


@pytest.mark.requirement("cli:hot-path")
@pytest.mark.parametrize("option", ["--version", "-V"])
def test_the_version_is_answered_without_click_or_msgspec(option: str) -> None:
    loaded = modules_after(option)
    assert not loaded & {"click", "msgspec", "asyncio", "importlib.metadata", "re", "tomllib"}


@pytest.mark.requirement("cli:lazy")
def test_help_imports_no_command() -> None:
    loaded = modules_after("--help")
    assert not {f"bullpen.cli.{name}" for name in COMMANDS} & loaded
    assert "msgspec" not in loaded


@pytest.mark.requirement("cli:lazy")
def test_a_command_imports_no_other() -> None:
    loaded = modules_after("explain", "--help")
    assert "bullpen.cli.explain" in loaded
    assert "bullpen.cli.evaluate" not in loaded
    assert not {"asyncio", "bullpen.connection"} & loaded


def test_the_entry_point_is_installed() -> None:
    (script,) = metadata.entry_points(group="console_scripts", name="bullpen")
    assert script.value == "bullpen.cli.main:main"


@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_help_has_examples_and_exit_codes(name: str) -> None:
    result = CliRunner().invoke(bullpen, [*([name] if name else []), "--help"])
    assert result.exit_code == 0
    assert "Examples:\n" in result.output
    assert re.search(r"Exit\s+codes:", result.output)


def test_help_lists_every_command_in_its_own_words() -> None:
    output = CliRunner().invoke(bullpen, ["--help"]).output
    for name, words in COMMANDS.items():
        assert f"{name}  " in output
        assert words in output


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["nonsense"], 2, "No such command 'nonsense'"),
        (["explain"], 2, "Missing option '--file'"),
        (
            ["explain", "--file", "nowhere.txt"],
            1,
            "bullpen: nowhere.txt: No such file or directory",
        ),
        (["explain", "--file", "-", "--cursor", "here"], 2, "'here' is not X,Y"),
        (["explain", "--file", "-", "--provider", "hal"], 2, "'hal' is not one of"),
        (["explain", "--file", "-", "--cmd", "'"], 2, "No closing quotation"),
        (["evaluate", "nowhere"], 2, "Directory 'nowhere' does not exist"),
    ],
)
def test_what_is_wrong_is_said_in_one_line_and_by_the_exit_code(
    arguments: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == code
    captured = capsys.readouterr()
    assert message in captured.err
    assert not captured.out


def test_a_wrong_rule_file_is_named(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = home / ".config/bullpen/rules"
    directory.mkdir(parents=True)
    (directory / "mine.toml").write_text('provider = "claude"\n[[rules]]\nname = "a"\n')
    assert run(["explain", "--file", "-"]) == 1
    assert "mine.toml: rule 'a': " in capsys.readouterr().err


def test_no_arguments_show_the_help() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bullpen.cli.main"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "Usage: bullpen" in done.stderr
