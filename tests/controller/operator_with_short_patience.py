"""topomend as a command that takes a pod for unbound after a second without a scheduler's node instead of thirty."""

from topomend.cli.main import main
from topomend.reconcile.refused import unbound_pods

if __name__ == "__main__":
    unbound_pods.PATIENCE_SECONDS = 1.0
    main()
