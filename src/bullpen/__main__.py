"""`python -m bullpen`: the command line, also where no script was installed."""

import sys

from bullpen.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
