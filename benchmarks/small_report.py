"""Writes the table of small calls: a line a row, then the geometric means by family."""

import measure
import report
from report import number
from small_rows import BOUND_MEAN, FAMILIES, NO_CALL

COLUMNS = ("Hyalite", "NumPy", "PyTorch", "JAX", "MLX")
AGAINST = ("NumPy", "PyTorch")
BOUNDS = {family.name: family.bound for family in FAMILIES}


def heading():
    """The names of the columns of `text`."""
    peers = "".join(f"{label:>15}" for label in COLUMNS)
    yield f"ns a statement, the best visit; Hyalite's time over NumPy's and over PyTorch's; - {NO_CALL}"
    yield f"{'row':<23}{peers}{'/ NumPy':>9}{'/ PyTorch':>10}  goals"


def text(table):
    """The line of a row, and one more for each library that failed."""
    cells = "".join(f"{_cell(table, label):>15}" for label in COLUMNS)
    ratios = f"{_ratio(table, 'NumPy'):>9}{_ratio(table, 'PyTorch'):>10}"
    yield f"{table.key:<23}{cells}{ratios}  {_goals(table):<27}  {table.title}"
    for result in table.results:
        if result.missing.startswith("failed"):
            yield f"    {result.label} {result.missing}: {result.statement}"


def _result(table, label):
    return next(result for result in table.results if result.label == label)


def _cell(table, label):
    result = _result(table, label)
    if result.value is not None:
        return number(result.value)
    return "-" if result.missing == NO_CALL else result.missing.partition(":")[0]


def _ratio(table, label):
    ratio = table.ratio(label)
    return "" if ratio is None else f"{ratio:.2f}x"


def _goals(table):
    missed = [verdict for verdict in table.verdicts if verdict.missed]
    if missed:
        return "MISSED " + ", ".join(v.text.removeprefix("<= ") for v in missed)
    return "met" if any(verdict.met for verdict in table.verdicts) else "not measured"


def means(tables):
    """By family: rows, misses, and the geometric means over NumPy and over PyTorch."""
    over = [measure.geometric_means(tables, label) for label in AGAINST]
    for family in [*dict.fromkeys(table.family for table in tables), "all"]:
        own = [table for table in tables if family in (table.family, "all")]
        missed = sum(any(v.missed for v in table.verdicts) for table in own)
        found = [mean.get(family) for mean in over]
        yield {"family": family, "rows": len(own), "missed": missed, **dict(zip(AGAINST, found, strict=True))}


def verdicts(tables):
    """The goals that count: those of the rows, and the one of the mean over all."""
    mean = measure.geometric_means(tables, "NumPy").get("all")
    met = None if mean is None else mean <= BOUND_MEAN
    text = f"<= {BOUND_MEAN:g}x NumPy, the geometric mean"
    return [*report.verdicts(tables), measure.Verdict(text, mean, met, "NumPy", "nothing was measured", mean)]


def _bound(family):
    bound = BOUND_MEAN if family == "all" else BOUNDS[family]
    return "" if bound is None else f"{bound:g}x"


def _mean(value):
    return "" if value is None else f"{value:.2f}x"


def summary(tables):
    """The geometric means as text."""
    yield ""
    yield f"{'geometric mean':<23}{'rows':>6}{'missed':>8}{'goal':>8}{'/ NumPy':>9}{'/ PyTorch':>10}"
    for m in means(tables):
        counts = f"{m['rows']:>6}{m['missed']:>8}{_bound(m['family']):>8}"
        yield f"{m['family']:<23}{counts}{_mean(m['NumPy']):>9}{_mean(m['PyTorch']):>10}"


def markdown(tables, facts):
    """Both tables: the means by family, then a line a row."""
    yield "| family | rows | miss a goal | goal, over NumPy | over NumPy | over PyTorch |"
    yield "|---" * 6 + "|"
    for m in means(tables):
        cells = [m["family"], str(m["rows"]), str(m["missed"]), _bound(m["family"]), _mean(m["NumPy"])]
        yield "| " + " | ".join([*cells, _mean(m["PyTorch"])]) + " |"
    yield ""
    yield "| family | row, ns | " + " | ".join(COLUMNS) + " | over NumPy | over PyTorch | goals |"
    yield "|---" * (len(COLUMNS) + 5) + "|"
    for table in tables:
        cells = [table.family, table.title, *(_cell(table, label) for label in COLUMNS)]
        cells += [_ratio(table, "NumPy"), _ratio(table, "PyTorch"), _goals(table).replace("MISSED", "**missed**")]
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
    yield ""
    yield f"-: {NO_CALL}. {report.machine_line(facts)}"


def as_json(tables, facts):
    """The whole run, samples and means included."""
    return report.as_json(tables, facts) | {"table": "small", "geometric_means": list(means(tables))}
