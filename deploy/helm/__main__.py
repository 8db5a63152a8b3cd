"""Write what is generated of the Helm chart in deploy/chart: ``python -m deploy.helm``."""

from deploy.helm.chart import CHART, generated


def main() -> None:
    """Write every generated file, and delete templates that nothing makes any more."""
    made = generated()
    for path in CHART.glob("templates/*.yaml"):
        if path.read_text().startswith("{{- /* Generated") and path not in made:
            path.unlink()
    for path, text in made.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


if __name__ == "__main__":
    main()
