"""Compares Hyalite with its peers, interleaved in one process, against the floor measured in the same run."""

import argparse
import json
import os
import sys
import time

# They choose OpenBLAS's kernels and blocks: what suits Hyalite's copy must not change the NumPy it is compared with.
NOT_FOR_NUMPY = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")


def restart_with_clean_environment():
    """Replaces the process by one without those variables, which libraries read as they load."""
    if any(name in os.environ for name in NOT_FOR_NUMPY):
        clean = {name: value for name, value in os.environ.items() if name not in NOT_FOR_NUMPY}
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], clean)


def rows_of(table):
    """The rows of a table by key; import and size are no statements."""
    import rows
    import small_rows

    if table == "small":
        return {row.key: row for row in small_rows.small_rows()}
    if table == "compiled":
        import compiled_rows

        return {row.key: row for row in compiled_rows.compiled_rows()}
    return {row.key: row for row in rows.statement_rows()} | {"import": None, "size": None}


def names_of(key, row):
    """What --rows may call a row: its key, the key without the size, its family."""
    return [key] if row is None else [key, key.partition("@")[0], *filter(None, [row.family])]


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "table",
        nargs="?",
        default="main",
        choices=("main", "small", "compiled"),
        help="main (default): the README's; small: calls on 0-d, 8 and 256 elements over the whole public surface; "
        "compiled: whole functions",
    )
    parser.add_argument("--rows", help="comma-separated keys; of small also families, and keys without @size")
    parser.add_argument("--exclude", default="", help="libraries to leave out, comma-separated, by import name")
    parser.add_argument("--rounds", type=int, help="rounds a row (default 9; 3 with --quick)")
    parser.add_argument("--quick", action="store_true", help="fewer rounds: for a look, not for a claim")
    parser.add_argument("--json", metavar="FILE", help="write the whole run, samples included")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown at the end")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a goal is missed or Hyalite has no figure")
    options = parser.parse_args(arguments)
    rows = {key: (row, names_of(key, row)) for key, row in rows_of(options.table).items()}
    wanted = options.rows.split(",") if options.rows else list(rows)
    known = dict.fromkeys(name for _, names in rows.values() for name in reversed(names) if "@" not in name)
    if unknown := set(wanted) - set(known) - set(rows):
        parser.error(f"no row {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    # In the order asked for; a family's rows in its own.
    options.rows = {key: row for want in wanted for key, (row, names) in rows.items() if want in names}
    options.rounds = options.rounds or (3 if options.quick else 9)
    if options.rounds < 1:
        parser.error("--rounds must be at least 1")
    return options


def open_floor():
    """The floor's loops, or a text that says why they are not there."""
    import native

    try:
        return native.Floor()
    except native.CannotCompile as error:
        return f"not measured: {error}"


def measure_row(key, row, libraries, floor, rounds):
    import footprint
    import measure

    if key == "import":
        return footprint.run_import(libraries, max(3, rounds + 1))
    if key == "size":
        return footprint.run_size(libraries)
    return measure.run_row(row, libraries, floor, rounds)


def engine_ceiling(libraries, floor):
    """Hyalite's own measured DRAM ceiling, beside the independent floor, where the build offers one."""
    engine = getattr(libraries["hyalite"].loaded, "_C_engine", None)
    if not hasattr(engine, "dram_ceiling") or isinstance(floor, str):
        return None
    try:
        return engine.dram_ceiling(floor.threads)
    except Exception as error:  # a figure for orientation must not end the run
        return f"{type(error).__name__}: {error}"


def load_libraries(table, exclude):
    """The libraries of a table, imported."""
    import peers
    import small_rows

    libraries = peers.catalogue()
    excluded = set(filter(None, exclude.split(",")))
    if unknown := excluded - set(libraries):
        sys.exit(f"run.py: no library {', '.join(sorted(unknown))}; there are {', '.join(libraries)}")
    if table == "small":
        libraries = {key: library for key, library in libraries.items() if key in small_rows.ALIASES}
    peers.load(libraries, excluded)
    if libraries["numpy"].loaded is None:
        sys.exit("run.py: NumPy is needed, for the inputs and for checking every result")
    return libraries


def main(arguments=None):
    restart_with_clean_environment()
    import machine
    import report
    import small_report

    options = parse(arguments)
    writer = small_report if options.table == "small" else report
    libraries = load_libraries(options.table, options.exclude)
    facts = machine.facts(libraries)
    facts["rounds"] = options.rounds
    floor = "not measured"
    if options.table == "main":
        floor = open_floor()
        facts["engine_dram_ceiling"] = engine_ceiling(libraries, floor)
    print(*report.machine_lines(facts), *writer.heading(), sep="\n", flush=True)
    start, tables = time.perf_counter(), []
    for key, row in options.rows.items():
        table = measure_row(key, row, libraries, floor, options.rounds)
        tables.append(table)
        print(*writer.text(table), sep="\n", flush=True)
    facts["load_after"] = machine.load_average()
    facts["seconds"] = round(time.perf_counter() - start, 1)
    print(f"\n{facts['seconds']} s; load average after: {', '.join(map(str, facts['load_after']))}")
    if options.markdown:
        print("", *writer.markdown(tables, facts), sep="\n")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(writer.as_json(tables, facts), file, indent=1)
            file.write("\n")
    for line in writer.summary(tables):
        print(line)
    verdicts = writer.verdicts(tables)
    met, failed, unknown = (sum(v.met is outcome for v in verdicts) for outcome in (True, False, None))
    print(f"goals: {met} met, {failed} missed, {unknown} not measured")
    return 1 if options.check and any(verdict.missed for verdict in verdicts) else 0


if __name__ == "__main__":
    sys.exit(main())
