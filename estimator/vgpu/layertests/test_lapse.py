"""Numbers of turns that note what is asked of them, loops over items, and what turns leave."""
import copy
import pickle
import time
import types
import unittest
from unittest import mock

from gresize_vgpu.lapse import gathered, loops_over_items, time_lapse, turn_numbers
from gresize_vgpu.program import own_files
from gresize_vgpu.steady import kept_by_turns


def landings(notes, after):
    return [(turn, answer) for turn, question, answer in notes.landings(after) if question is not None]


class TurnNumbers(unittest.TestCase):
    def test_a_number_is_an_int_in_every_respect(self):
        number = turn_numbers.Notes(range(10, 100, 5)).number(3)
        self.assertEqual((number, number + 1, 2 * number, number // 4, number % 7, number / 2), (25, 26, 50, 6, 4, 12.5))
        self.assertEqual({number: "x"}[25], "x")
        self.assertIs(type(copy.deepcopy(number)), int)
        self.assertIs(type(pickle.loads(pickle.dumps(number))), int)
        self.assertIsInstance([0] * number, list)

    def test_the_turn_of_the_other_answer_is_computed(self):
        notes = turn_numbers.Notes(range(1000))
        for turn in range(3):
            if notes.number(turn) % 100 == 99:
                self.fail("not yet")
        self.assertEqual(landings(notes, 2), [(99, True)])
        self.assertEqual(landings(notes, 99), [(199, True)])
        self.assertEqual(landings(notes, 999), [])

    def test_a_question_through_steps_that_are_reckoned(self):
        notes = turn_numbers.Notes(range(0, 5000, 2))
        for turn in range(3):
            warm = (notes.number(turn) + 1) * 3 > 600
        self.assertFalse(warm)
        self.assertEqual(landings(notes, 2)[0], (100, True))  # (200 + 1) * 3 = 603

    def test_an_answer_that_never_comes_is_none(self):
        notes = turn_numbers.Notes(range(50))
        for turn in range(3):
            self.assertFalse(notes.number(turn) > 1000)
        self.assertEqual(landings(notes, 2), [])

    def test_what_a_library_asks_does_not_count_where_it_is_said_so(self):
        notes = turn_numbers.Notes(range(50), listens=lambda filename: False)
        self.assertFalse(notes.number(0) > 10)
        self.assertEqual(notes.questions, {})

    def test_bits_of_a_number_are_followed(self):
        notes = turn_numbers.Notes(range(5000))
        for turn in range(3):
            number = notes.number(turn) + 1000
            self.assertEqual((number & (number - 1) == 0, number | 1, 7 ^ number, number >> 3, 1 << turn), ((1000 + turn) & (999 + turn) == 0, (1000 + turn) | 1, 7 ^ (1000 + turn), (1000 + turn) >> 3, 1 << turn))
        self.assertIn((24, True), landings(notes, 2))
        self.assertIn((1048, True), landings(notes, 30))

    def test_what_is_asked_beside_a_question_that_raised_the_peak_comes_again(self):
        notes = turn_numbers.Notes(range(1, 5000))
        for turn in [*range(12), 1023]:
            number = notes.number(turn)
            self.assertEqual(number & (number - 1) == 0 and number >= 1024, turn == 1023)
        _, question = notes.questions.values()
        self.assertNotIn((2047, True), landings(notes, 1023))
        self.assertFalse(notes.rose(question, True, 1 << 20))
        self.assertIn((2047, True), landings(notes, 1023))

    def test_a_number_that_is_looked_up_is_compared_with_each_key(self):
        class Settings:
            stages = {"sizes": {30: 64, 12: 32}}

        notes, settings, names = turn_numbers.Notes(range(100)), Settings(), {"a": 1}
        with mock.patch.object(own_files, "is_users", lambda filename: filename == __file__):
            for turn in range(3):
                self.assertFalse(notes.number(turn) in settings.stages["sizes"] or notes.number(turn) in names or notes.number(turn) in {40, 50})
        self.assertEqual(sorted({turn for turn, answer in landings(notes, 2) if answer}), [12, 30, 40, 50])
        self.assertEqual(sorted({turn for turn, answer in landings(notes, 30) if answer}), [40, 50])

    def test_too_many_questions_are_given_up(self):
        notes, number = turn_numbers.Notes(range(50)), None
        number = notes.number(0)
        exec("\n".join("number > %d" % i for i in range(turn_numbers.MOST_NOTES + 1)), {"number": number})
        self.assertTrue(notes.given_up)

    def test_a_size_that_is_largest_later_is_due(self):
        notes = turn_numbers.Notes(range(20))
        self.assertEqual(len("x" * (notes.number(0) * 8)), 0)
        self.assertEqual([turn for turn, question, _ in notes.landings(0) if question is None], [19])
        self.assertEqual({place[0] for place in notes.due()}, {__file__})


class TimeLapse(unittest.TestCase):
    def test_it_is_not_over_while_it_begins(self):
        lapse = time_lapse.TimeLapse(1000.0)
        with mock.patch.object(time_lapse.time, "process_time", side_effect=lambda: float(lapse.over())):  # as another thread may ask
            self.assertTrue(lapse.start(time.monotonic(), 0))
        self.assertEqual((lapse.ended, lapse.active), ("", True))


class KeptByPasses(unittest.TestCase):
    def kept(self, passes, length=100):
        """passes: (batches that were given, bytes that are held when each of them comes) of each pass."""
        kept, found = gathered._Kept(), 0
        for given, held in passes:
            found = kept.bytes(given, length, held[0], [gathered.Look(h, 0, 0) for h in held])
        return found

    def test_what_each_batch_leaves_for_good_is_reckoned_for_those_that_were_left_out(self):
        grows = [(4, [1000 * (4 * n + k) for k in range(4)]) for n in range(5)]
        self.assertEqual(self.kept(grows), 1000 * 5 * 96)
        self.assertEqual(self.kept(grows[:3]), 0)  # of too few passes nothing is known

    def test_what_goes_with_the_pass_is_not(self):
        self.assertEqual(self.kept([(4, [1000 * k for k in range(4)])] * 6), 0)
        self.assertEqual(self.kept([(4, [10**6 * n] * 4) for n in range(6)]), 0)  # what the epoch leaves
        full = [(4, [min(1000 * (4 * n + k), 20000) for k in range(4)]) for n in range(9)]
        self.assertEqual(self.kept(full), 0)


class KeptByTurns(unittest.TestCase):
    def left(self, held):
        """held: what is held when each turn begins."""
        now = []
        leaves = kept_by_turns.Leaves(lambda: now[-1])
        for bytes_held in held:
            now.append(bytes_held)
            leaves.turn()
        return leaves

    def test_what_each_turn_leaves(self):
        self.assertEqual(self.left(range(0, 800, 8)).bytes(), 8)

    def test_nothing_where_it_falls_again_or_mostly_rests(self):
        self.assertEqual(self.left([0, 8, 16, 8, 16, 24]).bytes(), 0)
        self.assertEqual(self.left([0, 8, 8, 8, 8, 8, 16]).bytes(), 0)
        self.assertEqual(self.left([0, 8, 16]).bytes(), 0)

    def test_few_samples_however_many_turns(self):
        self.assertLess(len(self.left(range(200)).samples), kept_by_turns.MOST_SAMPLES)


class Array:
    __module__ = "numpy"  # on the host

    def __init__(self, *shape):
        self.shape, self.dtype = shape, "float32"


class Length(Array):
    """One whole number that may be a length."""

    __module__ = "numpy"
    nbytes = 8

    def __init__(self, number):
        super().__init__(1)
        self.dtype, self.number = types.SimpleNamespace(kind="i"), number

    def max(self):
        return self.number

    sum = max


class LoopsStub:
    """As much of the loops in time-lapse as one over items asks: its first turns, and those it is to go on to."""

    most_variants = 2

    def __init__(self, turns, seconds=1000.0):
        self.lapse = types.SimpleNamespace(left_seconds=lambda: seconds, news=lambda: None)
        self.wanted, self.visits, self.items_of, self.read, self.unread, self.faults, self.variants = turns, {}, {}, set(), set(), [], 0

    def fault(self, e):
        self.faults.append(e)

    def turns_of_items(self, items, span, place):
        self.visits[place] = self.visits.get(place, 0) + 1
        items.notes = turn_numbers.Notes(span)
        for turn in range(4):
            yield turn
        for turn in self.wanted:
            while items.next <= turn:
                reached = items.reach(turn)
                if reached is None:
                    return
                yield reached


PLACE = LoopsStub.fault.__code__, 0


def turns(loops, iterable):
    return list(loops_over_items.Items(loops, iter(iterable), PLACE))


class LoopsOverItems(unittest.TestCase):
    def test_an_item_of_another_kind_has_its_turn_and_so_has_the_last(self):
        data = [Array(8, 4) for _ in range(100)]
        data[70], data[99] = Array(16, 4), Array(3, 4)
        loops = LoopsStub([50, 10**6])
        self.assertEqual([data.index(item) for item in turns(loops, data)], [0, 1, 2, 3, 50, 70, 99])
        self.assertEqual((loops.read, loops.unread, loops.items_of, loops.faults), ({PLACE}, set(), {}, []))
        turns(loops, data)
        self.assertEqual(loops.items_of, {PLACE: 100})

    def test_a_larger_whole_number_has_its_turn(self):
        data = [{"x": Array(8, 4), "length": Length(5)} for _ in range(100)]
        data[30], data[70] = {"x": Array(8, 4), "length": Length(4)}, {"x": Array(8, 4), "length": Length(6)}
        self.assertEqual([data.index(item) for item in turns(LoopsStub([50, 10**6]), data)], [0, 1, 2, 3, 50, 70, 99])

    def test_what_was_not_read_is_a_doubt(self):
        loops = LoopsStub([10], seconds=0.0)
        self.assertEqual(len(turns(loops, [Array(8) for _ in range(100)])), 6)
        self.assertEqual(len(loops.unread), 1)
        self.assertIn("was not read to its end", loops.unread.pop())

    def test_what_counts_the_items_is_a_number_of_the_loop(self):
        loops = LoopsStub([50])
        found = turns(loops, enumerate((Array(8) for _ in range(60)), 7))
        self.assertEqual([number for number, _ in found], [7, 8, 9, 10, 11, 57])  # what is beside the count is a kind of its own once it is known
        items = loops_over_items.Items(loops, iter(enumerate(Array(8) for _ in range(60))), PLACE)
        for number, _ in items:
            if number > 49:
                break
        self.assertEqual(landings(items.notes, 50), [(51, True)])

    def test_settings_are_no_data(self):
        for settings in ([1, 2, 3] * 5, ["a", "b", "c"] * 5, [object() for _ in range(15)], [0.1 * n for n in range(15)]):
            with self.subTest(str(settings[0])):
                found = turns(LoopsStub([10**6]), settings)
                self.assertTrue(set(found) == set(settings) and len(found) >= min(2 * len(set(settings)), len(settings)), found)

    def test_an_error_of_the_programs_is_its_own(self):
        def read():
            for _ in range(20):
                yield Array(8)
            raise LookupError("too few")

        loops = LoopsStub([10**6])
        with self.assertRaisesRegex(LookupError, "too few"):
            turns(loops, read())
        self.assertEqual((loops.faults, loops.read), ([], set()))

    def test_after_a_fault_of_ours_all_items_have_turns(self):
        loops, data = LoopsStub([50]), [Array(8) for _ in range(100)]
        del loops.lapse
        self.assertEqual(len(turns(loops, data)), 100)
        self.assertEqual(len(loops.faults), 1)

    def test_a_fault_of_ours_loses_no_item(self):
        loops, data = LoopsStub([50]), [Array(8) for _ in range(100)]
        with mock.patch.object(loops_over_items.Items, "_note", side_effect=KeyError):
            self.assertEqual(turns(loops, data), data)
        self.assertEqual(len(loops.faults), 1)

    def test_one_that_would_begin_anew_has_ended(self):
        class Again:
            number = 0

            def __iter__(self):
                return self

            def __next__(self):
                self.number = (self.number + 1) % 10
                if not self.number:
                    raise StopIteration
                return Array(8)

        self.assertEqual(len(turns(LoopsStub([10**6]), Again())), 5)

    def test_kinds(self):
        def kind(value):
            return loops_over_items.kind_of(value, [])

        self.assertEqual(kind({"x": Array(2, 3), "y": [1, 0.5]}), kind({"x": Array(2, 3), "y": [1, 0.7]}))
        for other in ({"x": Array(2, 4), "y": [1]}, {"x": Array(2, 3), "y": [2]}, {"z": Array(2, 3), "y": [1]}, [Array(2, 3), 1], {"x": Array(2, 3), "y": [1], "z": "a"}):
            self.assertNotEqual(kind({"x": Array(2, 3), "y": [1]}), kind(other))
        self.assertNotEqual(kind(object), kind(object))


if __name__ == "__main__":
    unittest.main()
