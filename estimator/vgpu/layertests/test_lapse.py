"""Numbers of turns that note what is asked of them, and what turns leave."""
import copy
import pickle
import unittest

from gresize_vgpu.lapse import turn_numbers
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


if __name__ == "__main__":
    unittest.main()
