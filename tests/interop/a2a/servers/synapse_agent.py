"""A real agent of Synapse, as `synapse start` runs it, which believes a screen sooner.

Synapse takes a task for done when its prompt is back, but not within half a minute. That is too
long for a test, and its profiles, where it could be said, are inside the package.
"""

import importlib
import runpy
from typing import Any

config: Any = importlib.import_module("synapse.config")
config.TASK_PROTECTION_TIMEOUT = 1.5
runpy.run_module("synapse.server", run_name="__main__")
