"""What the suite itself promises: nothing that a test asserts goes unheard."""

from __future__ import annotations

from pathlib import Path

import pytest

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
