"""Run the tests that have just failed once more, alone, and say which were unsteady.

Real programs, terminals and processes are awaited with generous limits, yet a shared machine can
stop for longer than any limit. A few failures are therefore looked at twice: what fails again has
failed; what passes alone is named, loudly, so that it is mended. Many failures are no accident.
"""

import json
import subprocess
import sys
from pathlib import Path

FAILED = Path(".pytest_cache/v/cache/lastfailed")
MOST = 10  # of more than eight thousand
SECONDS = 240  # for all of them: the whole has to end in time
TESTS_FAILED = 1  # pytest's word for it; anything else is no matter of luck


def main(status: int) -> int:
    """Return the status of the whole: 0 only if every test passed at last."""
    failed = sorted(json.loads(FAILED.read_text())) if FAILED.exists() else []
    if status != TESTS_FAILED or not 1 <= len(failed) <= MOST:
        return status
    sys.stdout.write(f"\n{len(failed)} failed; once more, alone:\n")
    sys.stdout.flush()
    try:
        command = [sys.executable, "-m", "pytest", *failed]
        again = subprocess.run(command, check=False, timeout=SECONDS).returncode
    except subprocess.TimeoutExpired:
        sys.stdout.write(f"\nThey did not end within {SECONDS} s.\n")
        return status
    if again == 0:
        names = "".join(f"UNSTEADY {each}\n" for each in failed)
        sys.stdout.write(f"\nThese passed only when they ran alone. Mend them:\n{names}")
    return again


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
