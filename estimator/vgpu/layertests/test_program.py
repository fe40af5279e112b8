"""Which lines of a program were not run, and whether they may take memory."""
import os
import sys
import tempfile
import types
import unittest

from gresize_vgpu.program import lines_not_run, loop_stack, own_files, sources


class Torch(types.ModuleType):
    """As much of PyTorch as the rule asks: where tensors are made by default."""

    @staticmethod
    def get_default_device():
        return types.SimpleNamespace(type="cpu")


TRAINING = """
import torch

def validate(net):
    return net(torch.zeros(4096, device="cuda"))

def tidy(log):
    log.clear()

for step in range(1000):
    loss = net(batch)
    if step == 500:
        validate(net)
    if step == 501:
        tidy(log)
    if ready:
        validate(net)
"""


class NotRun(unittest.TestCase):
    def setUp(self):
        sys.modules.setdefault("torch", Torch("torch"))
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def look(self, text, ran, whole=False, settled=False, answered=()):
        path = os.path.join(self.folder.name, "train%d.py" % len(os.listdir(self.folder.name)))
        with open(path, "w") as f:
            f.write(text)
        loop = next(i for i, line in enumerate(text.split("\n"), 1) if line.startswith("for "))
        turns = types.SimpleNamespace(around={(path, loop)}, turned=set())
        lines = {i for i, line in enumerate(text.split("\n"), 1) if any(line.strip().startswith(start) for start in ran)}
        blocks = lines_not_run.Blocks({path: lines}, turns, {(path, n) for n in answered}, {"net"})
        blocks.look({path: {loop}}, whole, settled)
        at = lambda found: [int(said.rsplit(" ", 1)[1]) for said in found]  # noqa: E731
        return at(blocks.doubts), at(blocks.advice)

    RAN = ("import", "def", "for", "loss", "if")

    def test_a_side_by_a_counter_that_has_not_come_as_far_is_a_doubt(self):
        doubts, advice = self.look(TRAINING, self.RAN)
        self.assertIn(13, doubts)
        self.assertNotIn(15, doubts + advice)  # takes nothing
        self.assertEqual(advice, [17])  # nothing moves what it asks

    def test_where_all_that_counters_ask_came_by_it_is_advice(self):
        doubts, advice = self.look(TRAINING, self.RAN, whole=True, settled=True)
        self.assertNotIn(13, doubts)
        self.assertIn(13, advice)

    def test_a_side_by_chance_stays_a_doubt(self):
        text = TRAINING.replace("if step == 500", "if random.random() < 0.01")
        doubts, _ = self.look(text, self.RAN, whole=True, settled=True)
        self.assertIn(13, doubts)

    def test_what_stands_behind_the_loop_is_a_doubt_until_it_is_run(self):
        text = TRAINING + "best = net(whole_set)\n"
        doubts, _ = self.look(text, self.RAN)
        self.assertIn(18, doubts)
        doubts, _ = self.look(text, self.RAN + ("best",))
        self.assertNotIn(18, doubts)


class Sources(unittest.TestCase):
    def test_a_library_is_not_the_programs(self):
        self.assertFalse(own_files.is_users(os.__file__))
        self.assertFalse(own_files.is_users(sources.__file__))
        self.assertFalse(own_files.is_users("<string>"))
        self.assertTrue(own_files.is_users(__file__))

    def test_a_file_that_is_gone_is_a_doubt_unless_it_was_generated_meanwhile(self):
        for age_seconds, generated in ((0, True), (3600, False)):
            with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
                written = own_files.BEGAN_UNIX + 1 - age_seconds
                os.utime(file.name, (written, written))
                self.assertTrue(own_files.is_users(file.name))
            if generated:
                self.assertIsNone(sources.tree(file.name))
            else:
                self.assertRaises(FileNotFoundError, sources.tree, file.name)

    def test_the_definition_of_a_function(self):
        self.assertEqual(sources.definition(Sources.test_a_library_is_not_the_programs).name, "test_a_library_is_not_the_programs")
        self.assertIsNone(sources.definition(os.path.join))

    def test_inside_leaves_functions_out(self):
        tree = sources.tree(__file__)
        names = {type(n).__name__ for n in sources.inside(tree.body)}
        self.assertNotIn("FunctionDef", names)
        self.assertIn("Import", names)


class Through:
    """Goes through what another goes through."""

    def __init__(self, iterator):
        self.iterator = iterator

    def __iter__(self):
        return self

    def __next__(self):
        return next(self.iterator)


def replace():
    """What the loops of the caller go through, which something of ours goes through from here on."""
    found = []
    for place in loop_stack.loops_of(sys._getframe(1)):
        found.append(place.get())
        if not isinstance(found[-1], Through):
            place.set(Through(found[-1]))
    return found


class LoopStack(unittest.TestCase):
    def test_nested_loops_are_found_and_go_on(self):
        one, two, seen = iter([1, 2]), zip("ab", "cd"), []

        def loops(kept):
            with open(__file__) as file:
                for a in one:
                    try:
                        for b in two if a == 1 else {"e": kept}.items():
                            seen.append((a, b, file.closed, [type(found) for found in replace()]))
                    finally:
                        kept += 1
            return kept

        self.assertEqual(loops(5), 7)
        self.assertEqual([entry[:3] for entry in seen], [(1, ("a", "c"), False), (1, ("b", "d"), False), (2, ("e", 6), False)])
        self.assertEqual([entry[3][0] for entry in seen], [type(iter([])), Through, Through])
        self.assertEqual([entry[3][1].__name__ for entry in seen], ["zip", "Through", "dict_itemiterator"])

    def test_a_loop_of_a_generator_and_of_a_method(self):
        def numbers():
            for number in iter([1, 2, 3]):
                yield number, [type(found) for found in replace()]

        class Kind(list):
            def go(self):
                for number in range(3):
                    super().append((number, replace()))
                    if number == 1:
                        break
                return len(self)

        self.assertEqual([found[0] for _, found in numbers()], [type(iter([])), Through, Through])
        self.assertEqual(Kind().go(), 2)

    def test_nothing_outside_of_a_loop(self):
        for _ in [1]:
            pass
        self.assertEqual(replace(), [])

    def test_what_is_replaced_is_given_back(self):
        items = [object() for _ in range(3)]
        before, count = sys.getrefcount(items[0]), 0
        for _ in items:
            replace()
            count += 1
        self.assertEqual((count, sys.getrefcount(items[0]), sys.getrefcount(items)), (3, before, 2))


if __name__ == "__main__":
    unittest.main()
