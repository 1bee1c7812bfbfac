"""What every test shares."""

pytest_plugins = ["tests.acceptance.plugin", "tests.support.policies", "pytester"]
