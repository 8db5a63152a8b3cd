"""topomend as a command, after whose last renewal the policies gate pods for ten seconds instead of ten minutes."""

from topomend.cli.main import main
from topomend.gating import parameters

if __name__ == "__main__":
    parameters.VALID_SECONDS = 10.0
    parameters.RENEW_SECONDS = 2.0
    main()
