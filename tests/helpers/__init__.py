"""What tests of whole runs share: starting them, looking for what they leave, breaking them."""

import pytest

pytest.register_assert_rewrite("tests.helpers.runs", "tests.helpers.clusters")
