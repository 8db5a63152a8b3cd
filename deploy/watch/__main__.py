"""``python -m deploy.watch``: writes the rules, the PrometheusRule and the board. ``make generate`` runs it."""

from deploy.watch.kept import kept

if __name__ == "__main__":
    for path, text in kept().items():
        path.write_text(text)
