"""Whether steps are alike, and which ranks and candidates are run."""
import os
import sys
import types
import unittest
from unittest import mock

from gresize_vgpu.compiler import autotune
from gresize_vgpu.dist import ranks
from gresize_vgpu.run import import_failure
from gresize_vgpu.steady import steady_state

GROWING = steady_state.GROWING_STEPS


def after(held, totals=None):
    found = steady_state.Steadiness()
    for i, bytes_held in enumerate(held):
        found.step(bytes_held, totals[i] if totals else 0, 1)
    return found


class Steady(unittest.TestCase):
    def test_peaks_that_rest(self):
        found = after([1 << 20] * GROWING)
        self.assertEqual(found.grows_bytes(), 0)
        self.assertTrue(found.rests([5, 5, 5]))
        self.assertFalse(found.rests([5, 6, 6]))
        self.assertFalse(found.rests([6, 5, 5]))

    def test_what_each_step_leaves(self):
        found = after([(1 << 20) + 512 * i for i in range(GROWING + 2)])
        self.assertEqual(found.grows_bytes(), 512)
        self.assertTrue(found.rests([1024, 1536, 2048]))
        self.assertFalse(found.rests([1024, 4096]))

    def test_one_step_that_leaves_nothing_ends_it(self):
        held = [512 * i for i in range(GROWING + 2)]
        held[-2] = held[-3]
        self.assertEqual(after(held).grows_bytes(), 0)

    def test_steps_in_turn_are_even(self):
        large, small = 100 << 20, 10 << 20
        for sizes, uneven in (([large] * 12, False), ([large, small] * 8, False), ([large, small, small, large, small, large, large, small, large, small, small, large], True)):
            totals = [sum(sizes[: i + 1]) for i in range(len(sizes))]
            self.assertEqual(after([0] * len(sizes), totals).uneven(), uneven, sizes)

    def test_a_last_batch_of_fewer_samples_is_not_another(self):
        self.assertFalse(steady_state.larger_or_other([(32, 3, 8)], [(7, 3, 8)]))
        self.assertTrue(steady_state.larger_or_other([(7, 3, 8)], [(32, 3, 8)]))
        self.assertTrue(steady_state.larger_or_other([(32, 3, 8)], [(32, 3, 9)]))
        self.assertTrue(steady_state.larger_or_other([(32,)], [(32,), (32,)]))

    def test_the_rest_of_packed_rows_is_not_another(self):
        def says(shapes, samples):
            class Rows(types.SimpleNamespace):
                def __len__(self):
                    return samples

            class Loader(types.SimpleNamespace):
                def __len__(self):
                    return len(shapes) if samples else None  # a stream's raises a TypeError

            sampler = types.SimpleNamespace(batch_size=8, sampler=Rows())
            found, loader = steady_state.Steadiness(), Loader(_dataset=Rows(), _index_sampler=sampler, _gresize_given=0)
            with mock.patch.object(steady_state, "shapes", lambda batch: [batch]):
                for shape in shapes:
                    found.batch(loader, shape)
                    loader._gresize_given += 1
            return found.varies

        self.assertIsNone(says([(1, 1024)] * 3 + [(1, 640)], 29))
        self.assertIsNotNone(says([(1, 1024)] * 3 + [(1, 640)], 32))  # as many rows
        self.assertIsNotNone(says([(1, 1024)] * 2 + [(1, 640), (1, 1024)], 29))  # not the last
        self.assertIsNotNone(says([(1, 1024), (1, 640)], 13))  # whether the others are alike is not known
        self.assertIsNotNone(says([(8, 100)] * 3 + [(5, 120)], 29))  # longer
        self.assertIsNotNone(says([(1, 1024)] * 3 + [(1, 640)], 0))  # a stream has no last batch

    def test_samples_that_are_no_larger_than_what_came(self):
        def says(lengths, came, join):
            found = steady_state.Steadiness()
            data = [(n,) for n in lengths]
            loader = types.SimpleNamespace(_dataset=data)
            collate = lambda rows: (1, sum(n for (n,) in rows)) if join else (len(rows), max(n for (n,) in rows))  # noqa: E731
            with mock.patch.object(steady_state, "shapes", lambda batch: [batch]):
                found.batch(loader, came)
                found._ask([(data, collate, True, 0, 8)], steady_state.time.monotonic() + 60)
            return found.varies

        self.assertIsNone(says([128] * 37 + [96], (1, 1024), True))
        self.assertIsNone(says([128] * 37 + [96], (8, 128), False))
        self.assertIsNotNone(says([128] * 37 + [200], (1, 1024), True))
        self.assertIsNotNone(says([90] * 37 + [120], (8, 90), False))
        self.assertIsNone(says([128, 96] * 5000, (8, 128), False))  # cut to 128
        self.assertIsNotNone(says([96] * 9999 + [128], (8, 128), False))  # of so many, others may be longer still

    def test_shapes_of_nested_batches(self):
        class Tensor:
            def __init__(self, *shape):
                self.shape = shape

        with mock.patch.dict(sys.modules, {"torch": types.SimpleNamespace(Tensor=Tensor)}):
            batch = {"x": Tensor(4, 3), "y": [Tensor(4), ("text", Tensor(4, 1))]}
            self.assertEqual(steady_state.shapes(batch), [(4, 3), (4,), (4, 1)])
            circle = []
            circle.append(circle)
            self.assertEqual(steady_state.shapes(circle), [])


class Ranks(unittest.TestCase):
    def test_few_ranks_are_all_run_and_of_many_the_ends(self):
        for most, world, want in (("4", 4, [0, 1, 2, 3]), ("4", 16, [0, 15]), ("1", 16, [0]), ("no", 2, [0, 1])):
            with mock.patch.dict(os.environ, {"GRESIZE_VGPU_MOST_RANKS": most}):
                self.assertEqual(ranks.chosen(world), want)


class Candidates(unittest.TestCase):
    def keep(self, names):
        kinds = {"e": "extern", "t": "template", "s": "subgraph"}
        choices = [types.SimpleNamespace(name=n, bmreq=types.SimpleNamespace(workspace_size=int(n[1:] or 0))) for n in names.split()]
        kept, extern = autotune.keep(choices, lambda c: kinds[c.name[0]])
        return " ".join(c.name for c in kept), extern

    def test_libraries_stay_and_of_the_others_the_largest(self):
        self.assertEqual(self.keep("e t1 t9 t3 s1 s2"), ("e t9 s2", True))
        self.assertEqual(self.keep("t1 t9 t3"), ("t1 t9", False))
        self.assertEqual(self.keep("t1"), ("t1", False))


class Machines(unittest.TestCase):
    def test_the_processor_of_a_file(self):
        self.assertIsNotNone(import_failure.machine_of(sys.executable))
        self.assertIsNone(import_failure.machine_of(__file__))
        self.assertIsNone(import_failure.machine_of("/no/such/file"))


if __name__ == "__main__":
    unittest.main()
