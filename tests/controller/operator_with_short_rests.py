"""topomend as a command whose campaign of moves rests for moments, and moves pods that are seconds old.

``LEAST_AGE_SECONDS`` is how old a pod is at least that is moved, instead of an hour.
"""

import os

from topomend.cli.main import main
from topomend.reconcile.defragment import campaign, movable_pods, quiet

if __name__ == "__main__":
    movable_pods.LEAST_AGE_SECONDS = float(os.environ["LEAST_AGE_SECONDS"])
    quiet.QUIET_SECONDS = quiet.LOOK_SECONDS = campaign.AGAIN_SECONDS = 1.0
    main()
