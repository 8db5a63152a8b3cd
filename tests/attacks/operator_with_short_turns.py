"""topomend as a command, whose turns for a pod are over after one node."""

from topomend.cli.main import main
from topomend.replay import effort

if __name__ == "__main__":
    effort.TURN_SECONDS = -1.0
    main()
