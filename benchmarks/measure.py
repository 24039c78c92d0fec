"""Times the rows: every peer is visited in every round, in one process; the best visit counts, the rest is noise."""

import gc
import itertools
import statistics
import time
from dataclasses import dataclass, field

import peers

LOOPS = 3  # timed loops a visit; the first one also evicts what the peer before left in the caches
MOST = 20_000  # statements in one loop


@dataclass
class Result:
    """What became of one entry: `value` in the row's unit, or `missing` saying why there is none."""

    label: str
    library: str
    statement: str = ""
    missing: str = ""
    variant: bool = False
    samples: list[float] = field(default_factory=list)  # best of each visit
    higher_is_better: bool = False
    note: str = ""

    @property
    def value(self):
        if not self.samples:
            return None
        return max(self.samples) if self.higher_is_better else min(self.samples)

    @property
    def median(self):
        return statistics.median(self.samples) if self.samples else None

    @property
    def spread(self):
        """How far the median visit lies from the best, as a fraction of the best."""
        return abs(self.median - self.value) / self.value if self.samples else None


@dataclass
class Verdict:
    """A goal with the ratio of the bests; `met` is None where one side was not measured.

    `paired` is the median over the rounds of the ratio within a round: where it differs much from `ratio`, the machine
    changed between rounds (a virtual machine's two processors may share one core for some seconds), and neither counts.
    """

    text: str
    ratio: float | None
    met: bool | None
    against: str | None
    reason: str = ""
    paired: float | None = None

    @property
    def missed(self):
        """Also where Hyalite has no figure: what fails does not meet its goal."""
        return self.met is False or self.reason.startswith("Hyalite")


@dataclass
class Table:
    """One measured row."""

    key: str
    title: str
    unit: str
    higher_is_better: bool
    results: list[Result]
    verdicts: list[Verdict]
    family: str = ""

    def ratio(self, label):
        """Hyalite's value over that of another entry; None where one was not measured."""
        ours, other = (next((r.value for r in self.results if r.label == name), None) for name in ("Hyalite", label))
        return None if ours is None or other is None else ours / other


def compile_loop(statement, names):
    """A function of a count that runs the statement so often and gives seconds per statement; values are dropped.

    The names are locals, as in timeit's setup, and the loop's own cost (some 10 ns) stays in, for every entry alike.
    """
    source = (
        f"def loop(count, {', '.join(names)}, clock=clock, repeat=repeat):\n"
        f"    rounds = repeat(None, count)\n"
        f"    start = clock()\n"
        f"    for _ in rounds:\n"
        f"        {statement}\n"
        f"    return (clock() - start) * 1e-9 / count\n"
    )
    scope = {"clock": time.perf_counter_ns, "repeat": itertools.repeat}
    exec(source, scope)
    loop, values = scope["loop"], list(names.values())
    return lambda count: loop(count, *values)


class Statement:
    """An entry made ready: its arrays are allocated, its value is checked and its count is calibrated."""

    def __init__(self, row, entry, library, arrays, expected):
        # A statement that writes must not write to what the next library is given.
        names = {k: a.copy() for k, a in arrays.items()} if entry.result else arrays
        names = {key: library.array(library.loaded, a) for key, a in names.items()} if library else {}
        if entry.records:
            names["a"] = library.requires_grad(names["a"])
        if entry.extra:
            names |= entry.extra(names)
        if library:
            names[library.alias] = library.loaded
        expression, value = _first_that_exists(entry, names)
        if library:
            _check(row, value, expected)
        del value
        self.text = expression if entry.lazy or not library else _synced(expression, entry.result, library.sync)
        self._loop = compile_loop(self.text, names)
        self._loop(1)
        once = self._loop(2)
        if once < 1e-4:  # the interpreter specialises the loop, and free lists fill
            once = self._loop(200)
        self._count = max(1, min(MOST, round(row.visit / once)))

    def visit(self):
        return min(self._loop(self._count) for _ in range(LOOPS))


def _first_that_exists(entry, names):
    for expression in entry.expressions[:-1]:
        try:
            return expression, _value(expression, entry.result, names)
        except AttributeError:
            continue
    return entry.expressions[-1], _value(entry.expressions[-1], entry.result, names)


def _value(expression, result, names):
    scope = dict(names)
    if result:
        exec(expression, scope)
    return eval(result or expression, scope)


def _synced(expression, result, sync):
    """The statement that ends when its value is there."""
    if not result:
        return sync.format(expression)
    return expression if sync == "{}" else f"{expression}; {sync.format(result)}"


def _check(row, value, expected):
    """Raises if the value is not NumPy's: a wrong result in no time is not a result."""
    import numpy

    found = peers.to_numpy(value)
    if row.contiguous and not found.flags.c_contiguous:
        raise ValueError("the copy is not contiguous")
    if not row.values:
        numpy.testing.assert_equal(found.shape, numpy.shape(expected))
        return
    numpy.testing.assert_allclose(found, expected, rtol=row.rtol, atol=row.rtol)


def run_row(row, libraries, floor, rounds):
    """Measures one row; `floor` is a native.Floor, or a text that says why there is none."""
    import numpy

    arrays = row.inputs(numpy)
    expected = eval(row.reference, {"np": numpy, **row.names, **arrays})
    results, visits = [], []
    for entry in row.entries:
        result = Result(entry.label, entry.library, " or ".join(entry.expressions), "", entry.variant)
        results.append(result)
        library = libraries.get(entry.library)
        if library and not library.loaded:
            result.missing = library.missing
            continue
        if entry.missing:
            result.missing = entry.missing
            continue
        try:
            statement = Statement(row, entry, library, arrays, expected)
        except Exception as error:  # one that cannot do it must not end the run, nor leave the table
            result.missing = "failed: " + " ".join(f"{type(error).__name__}: {error}".split())[:200]
            continue
        result.statement = statement.text
        visits.append((result, statement.visit))
    if row.floor:
        _add_floor(row, floor, results, visits)
    _take_rounds(row, visits, rounds)
    verdicts = judge(row.goals, results, row.unit)
    return Table(row.key, row.title, row.unit, row.higher_is_better, results, verdicts, row.family)


def _add_floor(row, floor, results, visits):
    pattern, moved = row.floor
    result = Result("floor", "floor", f"{moved / 1e6:.0f} MB by {('add', 'copy', 'read')[pattern]} loops", variant=True)
    results.append(result)
    if isinstance(floor, str):
        result.missing = floor
        return

    def visit():
        seconds = floor.seconds(pattern, moved)
        result.note = floor.winner
        return seconds

    visits.append((result, visit))


def _take_rounds(row, visits, rounds):
    gc.collect()
    gc.disable()
    try:
        for turn in range(rounds):
            first = turn % len(visits) if visits else 0  # nobody always follows the same peer
            for result, visit in visits[first:] + visits[:first]:
                if row.settle:
                    time.sleep(row.settle)
                result.higher_is_better = row.higher_is_better
                result.samples.append(row.value(visit()))
    finally:
        gc.enable()


def judge(goals, results, unit):
    """The verdict on each goal."""
    by_label = {result.label: result for result in results}
    verdicts = []
    for goal in goals:
        ours, other = by_label["Hyalite"], _opponent(goal.against, by_label)
        ratio, reason, paired = None, "", None
        if ours.value is None:
            reason = f"Hyalite: {ours.missing}"
        elif goal.against is None:
            ratio = ours.value
        elif other is None or other.value is None:
            reason = f"{goal.against}: {other.missing if other else 'none is installed'}"
        else:
            ratio = ours.value / other.value
            paired = statistics.median(a / b for a, b in zip(ours.samples, other.samples, strict=True))
        met = None if ratio is None else ratio <= goal.bound if goal.relation == "<=" else ratio >= goal.bound
        named = f"best peer ({other.label})" if goal.against == "best peer" and other else goal.against
        verdicts.append(Verdict(goal.text(unit), ratio, met, named, reason, paired))
    return verdicts


def _opponent(against, by_label):
    if against != "best peer":
        return by_label.get(against)
    able = [r for r in by_label.values() if r.value is not None and not r.variant and r.library != "hyalite"]
    if not able:
        return None
    pick = max if able[0].higher_is_better else min
    return pick(able, key=lambda result: result.value)


def geometric_means(tables, label):
    """The mean of Hyalite's ratios to a library, by family and for "all"."""
    ratios = {}
    for table in tables:
        if ratio := table.ratio(label):
            ratios.setdefault(table.family, []).append(ratio)
    if ratios:
        ratios["all"] = sum(ratios.values(), [])
    return {family: statistics.geometric_mean(found) for family, found in ratios.items()}
