"""The C++ example, built against an installed package as a user would do it, outside the source tree."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import hyalite

ROOT = Path(__file__).resolve().parents[2]
# build/<preset>/python/hyalite/__init__.py, of the preset under test; the path may be a link into the sources.
BUILD = Path(hyalite.__file__).absolute().parents[2]
# CMake and Ninja come from the environment that the tests run in.
ENVIRONMENT = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


def run(*command):
    """Runs a command, fails with its output when it fails, and returns that output."""
    done = subprocess.run(
        [str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=ENVIRONMENT
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}"
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    prefix = tmp_path_factory.mktemp("prefix")
    run("cmake", "--install", BUILD, "--component", "cpp", "--prefix", prefix)
    return prefix


def configure_and_build(source, build, prefix):
    run(
        "cmake", "-G", "Ninja", "-S", source, "-B", build, f"-DCMAKE_PREFIX_PATH={prefix}", "-DCMAKE_BUILD_TYPE=Release"
    )
    run("cmake", "--build", build)


def test_example_adds_differentiates_and_explains(installed, tmp_path):
    configure_and_build(ROOT / "examples/cpp", tmp_path, installed)
    printed = run(tmp_path / "a_plus_b")
    lines = [line.split() for line in printed.splitlines()]
    assert ["c", "(2,3,)", "1.5", "2.25", "3.125", "4.5", "5.25", "6.125"] in lines
    assert ["a.grad", "(2,3,)", "3", "4.5", "6.25", "9", "10.5", "12.25"] in lines  # 2 c
    assert ["b.grad", "(3,)", "12", "15", "18.5"] in lines  # summed over the rows
    assert f"Hyalite {hyalite.__version__}" in printed
    assert "loss   102.406, made by SumBackward" in printed
    for phase in ("Validate", "Compute", "Record", "Return"):
        assert any(line[:1] == [phase] for line in lines), f"{phase} is missing:\n{printed}"


def test_only_public_headers_are_installed(installed):
    names = {path.name for path in (installed / "include").rglob("*.h")}
    assert names == {path.name for path in (ROOT / "include/hyalite").glob("*.h")} | {"ops.h"}


def test_errors_cross_the_border_with_their_values(installed, tmp_path):
    (tmp_path / "main.cpp").write_text(
        """
        #include <hyalite/hyalite.h>
        #include <iostream>
        int main() {
          const auto a = hyalite::zeros({3}), b = hyalite::zeros({3}, hyalite::Dtype::float64);
          try {
            a + b;
          } catch (const hyalite::DtypeMismatch& error) {
            std::cout << error.what() << "\\n" << error.attributes().size() << " values\\n";
            return 0;
          }
          return 1;
        }
        """
    )
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.24)\nproject(errors LANGUAGES CXX)\nfind_package(hyalite REQUIRED)\n"
        "add_executable(errors main.cpp)\ntarget_link_libraries(errors hyalite::hyalite)\n"
    )
    configure_and_build(tmp_path, tmp_path / "build", installed)
    printed = run(tmp_path / "build/errors")
    assert "float32 and float64 do not match" in printed
    assert "0 values" not in printed
