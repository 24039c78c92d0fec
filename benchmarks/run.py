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


def parse(arguments, keys):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", help="comma-separated, of: " + ", ".join(keys))
    parser.add_argument("--exclude", default="", help="libraries to leave out, comma-separated, by import name")
    parser.add_argument("--rounds", type=int, help="rounds a row (default 9; 3 with --quick)")
    parser.add_argument("--quick", action="store_true", help="fewer rounds: for a look, not for a claim")
    parser.add_argument("--json", metavar="FILE", help="write the whole run, samples included")
    parser.add_argument("--markdown", action="store_true", help="print the table for the README at the end")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a goal is missed or Hyalite has no figure")
    options = parser.parse_args(arguments)
    options.rows = options.rows.split(",") if options.rows else list(keys)
    if unknown := set(options.rows) - set(keys):
        parser.error(f"no row {', '.join(sorted(unknown))}; there are {', '.join(keys)}")
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


def measure_row(key, libraries, floor, rounds):
    import footprint
    import measure
    import rows

    if key == "import":
        return footprint.run_import(libraries, max(3, rounds + 1))
    if key == "size":
        return footprint.run_size(libraries)
    row = next(row for row in rows.statement_rows() if row.key == key)
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


def main(arguments=None):
    restart_with_clean_environment()
    import machine
    import peers
    import report
    import rows

    keys = [row.key for row in rows.statement_rows()] + ["import", "size"]
    options = parse(arguments, keys)
    libraries = peers.catalogue()
    excluded = set(filter(None, options.exclude.split(",")))
    if unknown := excluded - set(libraries):
        sys.exit(f"run.py: no library {', '.join(sorted(unknown))}; there are {', '.join(libraries)}")
    peers.load(libraries, excluded)
    if libraries["numpy"].loaded is None:
        sys.exit("run.py: NumPy is needed, for the inputs and for checking every result")
    floor = open_floor()
    facts = machine.facts(libraries)
    facts["rounds"] = options.rounds
    facts["engine_dram_ceiling"] = engine_ceiling(libraries, floor)
    print(*report.machine_lines(facts), sep="\n", flush=True)
    start, tables = time.perf_counter(), []
    for key in options.rows:
        table = measure_row(key, libraries, floor, options.rounds)
        tables.append(table)
        print("", *report.text(table), sep="\n", flush=True)
    facts["load_after"] = machine.load_average()
    facts["seconds"] = round(time.perf_counter() - start, 1)
    print(f"\n{facts['seconds']} s; load average after: {', '.join(map(str, facts['load_after']))}")
    if options.markdown:
        print("", *report.markdown(tables, facts), sep="\n")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(report.as_json(tables, facts), file, indent=1)
            file.write("\n")
    verdicts = [verdict for table in tables for verdict in table.verdicts]
    missed = [v for v in verdicts if v.met is False or v.reason.startswith("Hyalite")]
    met, failed, unknown = (sum(v.met is outcome for v in verdicts) for outcome in (True, False, None))
    print(f"goals: {met} met, {failed} missed, {unknown} not measured")
    return 1 if options.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
