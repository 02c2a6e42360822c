"""Runs the tests against an emulator that listens, for `run` beside this folder; writes `N passed, N failed` to a file."""

import argparse
import faulthandler
import pathlib
import signal
import sys
import unittest

import world

# Seconds after which a test that hangs is shown and all is over.
LIMIT = 500


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--grpc", required=True, help="host:port of the emulator's Storage Write API")
    parser.add_argument("--http", required=True, help="host:port of its REST API")
    parser.add_argument("--tool", required=True, help="the arroyo-bigquery program")
    parser.add_argument("--work", required=True, type=pathlib.Path, help="folder for files of the tests")
    parser.add_argument("--transcripts", required=True, type=pathlib.Path, help="folder for what clients saw")
    parser.add_argument("--count", required=True, type=pathlib.Path, help="file for the count of the tests")
    parser.add_argument("tests", nargs="*", help="test names, such as test_pipeline.Earthquakes; else all")
    arguments = parser.parse_args()
    # As an exception, so that a pipeline that runs is killed with this process.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    faulthandler.dump_traceback_later(LIMIT, exit=True)
    world.connect(arguments.grpc, arguments.http, arguments.tool, arguments.work)
    world.transcripts = arguments.transcripts
    loader = unittest.TestLoader()
    if arguments.tests:
        suite = loader.loadTestsFromNames(arguments.tests)
    else:
        suite = loader.discover(str(pathlib.Path(__file__).parent))
    total = suite.countTestCases()
    result = unittest.TextTestRunner(verbosity=2, resultclass=Counting).run(suite)
    # Whatever did not pass failed: a skipped test, and those whose class could not be set up, too.
    arguments.count.write_text(f"{result.passed} passed, {total - result.passed} failed\n")
    sys.exit(0 if total > 0 and result.passed == total else 1)


class Counting(unittest.TextTestResult):
    """Counts what passed."""

    passed = 0

    def addSuccess(self, test):
        super().addSuccess(test)
        self.passed += 1


if __name__ == "__main__":
    main()
