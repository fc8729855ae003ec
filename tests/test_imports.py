"""What importing a room loads: the run-time twin of the import contracts."""

import subprocess
import sys

import pytest

PROGRAM = """
import sys
before = set(sys.modules)
import {module}
for name in sorted(set(sys.modules) - before):
    print(name)
"""


def loaded_by(module: str) -> set[str]:
    """Return the top-level packages beyond the standard library that importing a module loads."""
    # -I: neither the environment nor the working directory lends the program anything.
    output = subprocess.run(
        [sys.executable, "-I", "-c", PROGRAM.format(module=module)],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return {name.partition(".")[0] for name in output.split()} - sys.stdlib_module_names


@pytest.mark.parametrize("module", ["bullpen.connection", "bullpen.jsonrpc"])
def test_the_library_loads_msgspec_and_no_other_third_party(module: str) -> None:
    allowed = {"bullpen", "msgspec", "typing_extensions"}  # the last is msgspec's own
    assert loaded_by(module) <= allowed


def test_importing_the_package_loads_nothing_else() -> None:
    assert loaded_by("bullpen") == {"bullpen"}
