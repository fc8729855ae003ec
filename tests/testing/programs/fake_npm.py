"""An npm that fetches nothing: it unpacks a program made up on the spot."""

import json
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path

from bullpen.testing.programs.table import Program, current_platform

NPM = """\
import json, pathlib, sys

here = pathlib.Path(__file__).resolve().parent
with (here / "calls").open("a") as calls:
    calls.write(json.dumps(sys.argv[1:]) + "\\n")
gate = here / "gate"
if gate.exists():
    gate.read_text()  # a pipe: the test opens it
plan = json.loads((here / "plan.json").read_text())
print(plan["output"])
if plan["status"]:
    sys.exit(plan["status"])
options = dict(a[2:].split("=", 1) for a in sys.argv if a.startswith("--") and "=" in a)
prefix = pathlib.Path(options["prefix"])
pathlib.Path(options["cache"]).mkdir()
executable = prefix / "node_modules" / plan["executable"]
executable.parent.mkdir(parents=True)
executable.write_text(plan["script"])
executable.chmod(0o755)
packages = {"node_modules/" + p: {"integrity": i} for p, i in plan["integrity"].items()}
(prefix / "package-lock.json").write_text(json.dumps({"packages": packages}))
"""


@dataclass
class FakeNpm:
    """A directory for PATH with a node and an npm in it that installs `program`."""

    directory: Path
    program: Program
    output: str = "added 1 package"
    status: int = 0
    script: str = ""
    integrity: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.directory.mkdir(exist_ok=True)
        self.script = self.script or f"#!/bin/sh\necho {self.program.version}\n"
        self.integrity = {**self.program.integrity, **self.integrity}
        write_script(self.directory / "node", "#!/bin/sh\necho v20.0.0\n")
        write_script(self.directory / "npm", f"#!{sys.executable}\n{NPM}")
        plan = {
            "output": self.output,
            "status": self.status,
            "script": self.script,
            "executable": self.program.path_in_node_modules(current_platform()),
            "integrity": self.integrity,
        }
        (self.directory / "plan.json").write_text(json.dumps(plan))

    @property
    def calls(self) -> list[list[str]]:
        """The command lines npm was run with."""
        log = self.directory / "calls"
        return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []

    def close_gate(self) -> Path:
        """Make npm wait until somebody writes to the pipe that is returned."""
        gate = self.directory / "gate"
        os.mkfifo(gate)
        return gate


def write_script(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)
