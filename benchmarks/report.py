"""Writes the measured tables: as text, as a Markdown table for the README, and as JSON."""

from dataclasses import asdict

COLUMNS = {"numpy": "NumPy", "torch": "PyTorch", "jax": "JAX", "mlx": "MLX (CPU)"}


def number(value):
    """Three figures, without an exponent."""
    if value is None:
        return ""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def machine_lines(facts):
    caches = ", ".join(f"{level} {size}" for level, size in facts["caches"].items())
    yield f"{facts['processor']}, {facts['cores']} cores, {', '.join(facts['instruction_sets'])}; {caches}"
    yield f"{facts['system']}, Python {facts['python']}, huge pages: {facts['huge_pages']}"
    yield f"load average before: {', '.join(map(str, facts['load_before']))}; commit {facts['commit'] or 'none'}"
    yield "versions: " + "; ".join(f"{name} {version}" for name, version in facts["versions"].items())
    if facts["load_before"][0] > facts["cores"] / 2:
        yield "WARNING: the machine is busy; run this again on a quiet one before claiming anything"
    if facts["environment"]:
        yield "environment: " + " ".join(f"{k}={v}" for k, v in facts["environment"].items())


def heading():
    """Nothing: each row has its own heading."""
    return []


def verdict_text(verdict):
    if verdict.ratio is None:
        return f"goal {verdict.text}: not measured ({verdict.reason})"
    outcome = "met" if verdict.met else "MISSED"
    if verdict.against is None:
        return f"goal {verdict.text}: {number(verdict.ratio)}, {outcome}"
    return f"goal {verdict.text}: {verdict.ratio:.3f}x {verdict.against} (by rounds {verdict.paired:.3f}x), {outcome}"


def text(table):
    """The lines of one row: every peer, its ratio, the noise, and the goals."""
    ours = next(result for result in table.results if result.label == "Hyalite").value
    better = "higher is better" if table.higher_is_better else "lower is better"
    yield ""
    yield f"{table.key}: {table.title}, {table.unit} ({better}); best, noise, Hyalite / this"
    for result in table.results:
        if result.value is None:
            yield f"  {result.label:<15} {result.missing}"
            continue
        ratio = f"{ours / result.value:.3f}x" if ours is not None else "-"
        noise = f"median +-{result.spread:.0%}" if len(result.samples) > 1 else ""
        note = f"  [{result.note}]" if result.note else ""
        yield f"  {result.label:<15} {number(result.value):>9}  {noise:<14} {ratio:>8}  {result.statement}{note}"
    for verdict in table.verdicts:
        yield f"  {verdict_text(verdict)}"


def _cell(results):
    cells = []
    for result in results:
        suffix = {"MLX, evaluated": "evaluated "}.get(result.label, "out= " if result.label.endswith("out=") else "")
        cells.append(suffix + (number(result.value) if result.value is not None else result.missing))
    return ", ".join(dict.fromkeys(cells))


def _goal_cell(verdict):
    if verdict.ratio is None:
        return f"{verdict.text}: not measured"
    shown = number(verdict.ratio) if verdict.against is None else f"{verdict.ratio:.2f}x"
    return f"{verdict.text}: **{shown}**" + ("" if verdict.met else " (missed)")


def markdown(tables, facts):
    """The table for the README: one line a row, one column a peer."""
    yield "| work | Hyalite | " + " | ".join(COLUMNS.values()) + " | others | floor | goal: measured |"
    yield "|---" * (len(COLUMNS) + 5) + "|"
    for table in tables:
        ours = [r for r in table.results if r.library == "hyalite"]
        floors = [r for r in table.results if r.label == "floor"]
        others = [r for r in table.results if r.library not in {*COLUMNS, "hyalite"} and r not in floors]
        columns = [_cell([r for r in table.results if r.library == key]) for key in COLUMNS]
        named = "; ".join(f"{r.label} {_cell([r]).removeprefix('out= ')}" for r in others)
        goals = "; ".join(_goal_cell(v) for v in table.verdicts)
        cells = [f"{table.title}, {table.unit}", _cell(ours), *columns, named, _cell(floors), goals]
        yield "| " + " | ".join(cells) + " |"
    yield ""
    yield machine_line(facts)


def machine_line(facts):
    """The processor and the versions, as a line below a table."""
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    return f"{facts['processor']}, {facts['cores']} cores, Python {facts['python']}; {versions}."


def verdicts(tables):
    """The goals that count: those of the rows."""
    return [verdict for table in tables for verdict in table.verdicts]


def summary(tables):
    """Nothing: rows in different units have no mean."""
    return []


def as_json(tables, facts):
    """The whole run, samples included."""
    rows = []
    for table in tables:
        row = asdict(table)
        for entry, result in zip(row["results"], table.results, strict=True):
            entry |= {"value": result.value, "median": result.median, "spread": result.spread}
        rows.append(row)
    return {"schema": "hyalite-benchmarks/1", "facts": facts, "rows": rows}
