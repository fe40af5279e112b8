"""What is registered of each operator, and between which numbers the results of some lie."""
import collections
import operator
import types
import unittest

from gresize_vgpu.values import intervals
from gresize_vgpu.values.operators import OPERATORS, Operator


class Registrations(unittest.TestCase):
    def test_each_name_once(self):
        names = collections.Counter(name for row in OPERATORS for name in row.names + row.writes)
        self.assertGreater(len(names), 250)
        self.assertEqual([name for name, count in names.items() if count > 1], [])

    def test_each_says_something(self):
        facts = ("guess", "healthy", "span", "floats", "joins", "fills", "fills_by", "makes")
        for row in OPERATORS:
            said = row.again or row.writes or any(getattr(row, fact) not in (None, [], "") for fact in facts)
            self.assertTrue(said, row.names)
            self.assertTrue(row.names or row.writes)

    def test_a_fact_that_there_is_not(self):
        with self.assertRaisesRegex(TypeError, "spam"):
            Operator("add", "", True, spam=1)


class Spans(unittest.TestCase):
    def operand(self, value):
        return value if isinstance(value, tuple) else None

    def test_two_numbers(self):
        for rule, function in ((intervals.plus, operator.add), (intervals.minus, operator.sub), (intervals.times, operator.mul)):
            for a in ((0, 3), (-2, 5), (-7, -1)):
                for b in ((0, 0), (-4, 2), (1, 9)):
                    every = [function(x, y) for x in range(a[0], a[1] + 1) for y in range(b[0], b[1] + 1)]
                    self.assertEqual(rule((a, b), None, self.operand), (min(every), max(every)), (function, a, b))
            self.assertIsNone(rule(((0, 3),), None, self.operand))
            self.assertIsNone(rule(((0, 3), "unknown"), None, self.operand))

    def test_several_into_one(self):
        self.assertEqual(intervals.joined(([(0, 3), (-1, 2)],), None, self.operand), (-1, 3))
        self.assertIsNone(intervals.joined(([(0, 3), "unknown"],), None, self.operand))
        self.assertIsNone(intervals.joined(([(0, 3)], 1), None, self.operand))

    def test_same_type_alone(self):
        whole, other = types.SimpleNamespace(dtype="int64"), types.SimpleNamespace(dtype="float32")
        self.assertEqual(intervals.same((whole,), whole, lambda value: (0, 9)), (0, 9))
        self.assertIsNone(intervals.same((other,), whole, lambda value: (0, 9)))
        self.assertEqual(intervals.cast((other,), whole, lambda value: (0, 9)), (0, 9))
