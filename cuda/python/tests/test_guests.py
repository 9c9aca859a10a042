"""Programs with ways of their own, bare and under the real gpurec run: they are
those of testdata/h200/cupy_guests.py, over the stand-in for CuPy."""

import os
import sys
import unittest
from unittest import mock

from support import BIN, PACKAGE, STANDIN, Case, recording_missing

# Last: it has test modules of its own, of equal names.
sys.path.append(os.path.join(os.path.dirname(os.path.dirname(PACKAGE)), "testdata", "h200"))
import cupy_guests  # noqa: E402


class TestGuests(Case):
    def compare(self, *flags, **environment):
        said = []
        with mock.patch.dict(os.environ, PATH=os.pathsep.join([BIN, os.environ["PATH"]])):
            differ = cupy_guests.compare(
                os.path.join(self.dir, "out"), flags, say=said.append, PYTHONPATH=STANDIN, GUEST_CUPY=STANDIN, **environment
            )
        return differ, said

    @unittest.skipIf(recording_missing(), recording_missing())
    def test_all_behave_as_without_us(self):
        differ, said = self.compare("--sample-interval", "0")
        self.assertEqual(differ, 0, "\n".join(said))
        self.assertEqual(len(said), len(cupy_guests.ROWS) + 2)

    @unittest.skipIf(recording_missing(), recording_missing())
    def test_the_comparison_can_fail(self):
        with mock.patch.object(cupy_guests, "ROWS", cupy_guests.ROWS[:1]):
            differ, said = self.compare("--no-python", "--sample-interval", "0")
        self.assertEqual(differ, 1)
        self.assertRegex(said[1], r"^hooks of its own +0 +5 +0  differs: events$")


if __name__ == "__main__":
    unittest.main()
