"""What the suite itself promises: nothing that a test asserts goes unheard."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.memory import prefix, sweep

CONFIGURATION = Path(__file__).parents[1] / "pyproject.toml"


def test_an_assertion_in_a_thread_fails_the_test_that_began_it(pytester: pytest.Pytester) -> None:
    """A server that answered one of 250 acknowledgements with 500 passed the random kills: it was a warning."""
    pytester.makepyfile(
        """
        import threading

        def test_in_a_thread():
            def send():
                assert 500 in (200, 202, 503)

            thread = threading.Thread(target=send)
            thread.start()
            thread.join()
        """
    )
    done = pytester.runpytest_subprocess("-c", str(CONFIGURATION), "-p", "no:cacheprovider", str(pytester.path))
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["*PytestUnhandledThreadExceptionWarning*"])


def test_the_files_of_a_run_that_was_killed_are_removed_by_the_next_one(tmp_path: Path) -> None:
    killed = subprocess.Popen(["sleep", "60"])
    own, left = (tmp_path / f"{prefix().replace(str(os.getpid()), str(pid))}x" for pid in (os.getpid(), killed.pid))
    for directory in (own, left):
        (directory / "within").mkdir(parents=True)
    sweep(tmp_path)
    assert left.exists(), "it is alive"
    killed.kill()
    killed.wait()
    sweep(tmp_path)
    assert [one.name for one in tmp_path.iterdir()] == [own.name]
