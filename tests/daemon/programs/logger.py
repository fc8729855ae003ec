"""Logs until its disk is full, then says what is known of that: `logger.py PATH BYTES`."""

import logging
import resource
import signal
import sys
from pathlib import Path

from bullpen.daemon.log import open_log

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), int(sys.argv[2])))
log = open_log(Path(sys.argv[1]))
for number in range(100):
    logging.getLogger("bullpen").info("%d %s", number, "x" * 100)
log.close()
sys.stdout.write(f"{log.dropped} {log.trouble}\n")
