"""topomend as a command, whose storm brake lets an owner go after ``BRAKE_QUIET_SECONDS`` instead of a minute."""

import os

from topomend.cli.main import main
from topomend.reconcile.refused import brake

if __name__ == "__main__":
    brake.QUIET_SECONDS = float(os.environ["BRAKE_QUIET_SECONDS"])
    main()
