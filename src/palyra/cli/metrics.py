"""Numbers of a daemon's metrics: reading the text of a scrape, and what two scrapes say of the time between.

Does not own: asking for the text (client), showing it (terminal.top_view).
"""

import msgspec

Labels = tuple[tuple[str, str], ...]

BUCKET = "palyra_phase_seconds_bucket"


class Scrape(msgspec.Struct, frozen=True):
    """`at_s` is a monotonic time."""

    at_s: float
    samples: dict[tuple[str, Labels], float]

    def value(self, name: str, **labels: str) -> float:
        return self.samples.get((name, tuple(sorted(labels.items()))), 0.0)

    def total(self, name: str, **labels: str) -> float:
        """The sum over all other labels."""
        wanted = set(labels.items())
        return sum(value for (found, own), value in self.samples.items() if found == name and wanted <= set(own))

    def values(self, name: str, label: str) -> dict[str, float]:
        found: dict[str, float] = {}
        for (sample, labels), value in self.samples.items():
            if sample == name:
                key = dict(labels).get(label, "")
                found[key] = found.get(key, 0.0) + value
        return found


def read_scrape(text: str, at_s: float) -> Scrape:
    from prometheus_client.parser import text_string_to_metric_families

    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return Scrape(at_s, {(each.name, tuple(sorted(each.labels.items()))): each.value for each in samples})


def rate(before: Scrape | None, now: Scrape, name: str, **labels: str) -> float:
    """How much a counter grew a second. A daemon that was restarted in between counts from zero."""
    if before is None or now.at_s <= before.at_s:
        return 0.0
    return max(0.0, now.total(name, **labels) - before.total(name, **labels)) / (now.at_s - before.at_s)


def quantile(scrape: Scrape, phase: str, share: float) -> float | None:
    """The upper bound of the bucket that holds this share of a phase's times; None if there are none."""
    bounds = sorted(
        (float(dict(labels)["le"]), count)
        for (name, labels), count in scrape.samples.items()
        if name == BUCKET and dict(labels).get("phase") == phase
    )
    total = bounds[-1][1] if bounds else 0.0
    if not total:
        return None
    return next(bound for bound, count in bounds if count >= share * total)
