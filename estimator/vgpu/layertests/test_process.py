"""What the layer needs of its process."""
import os
import pathlib
import sys
import tempfile
import threading
import unittest
from unittest import mock

from gresize_vgpu.process import exceptions, guard, native, report_file, settings, tracebacks, watched


class Settings(unittest.TestCase):
    def test_a_number_is_above_zero_or_not_taken(self):
        for text, want in (("7", 7), ("0", 4), ("-1", 4), ("many", 4), ("", 4), (None, 4)):
            with mock.patch.dict(os.environ, {} if text is None else {"GRESIZE_X": text}, clear=True):
                self.assertEqual(settings.number("GRESIZE_X", 4, int), want, text)

    def test_parts_are_whole_words(self):
        with mock.patch.dict(os.environ, {"GRESIZE_PROBE_PARTS": "modules,operators"}):
            self.assertTrue(settings.wants_part("modules"))
            self.assertFalse(settings.wants_part("module"))

    def test_an_environment_that_lost_the_stubs_is_seen(self):
        whole = {"GRESIZE_VGPU_DIR": "/lib/vgpu", "LD_AUDIT": "/other.so:/lib/vgpu/gresize-audit.so"}
        for change, want in (({}, True), ({"LD_AUDIT": "/other.so"}, False), ({"GRESIZE_VGPU_DIR": ""}, False)):
            with mock.patch.dict(os.environ, {**whole, **change}, clear=True):
                self.assertEqual(settings.environment_kept(), want, change)


class Guard(unittest.TestCase):
    def test_a_fault_of_ours_does_not_reach_the_program(self):
        guard.quietly(lambda: 1 / 0)
        guard.quietly(int, "x")

    def test_the_end_of_the_program_does(self):
        with self.assertRaises(SystemExit):
            guard.quietly(sys.exit, 3)


class Native(unittest.TestCase):
    def test_without_a_replaced_library_there_is_nothing_to_ask(self):
        self.assertIsNone(native.library())
        self.assertEqual((native.all_reads(), native.unknown_reads(), native.values_read_back(3)), (0, 0, 0))
        self.assertFalse(native.peek(None, 0, 8))
        native.flush()
        native.let_checks_pass(True)


class Exceptions(unittest.TestCase):
    def test_the_first_line_and_the_second_where_the_first_announces_it(self):
        for text, want in (
            ("CUDA error\nmore", "CUDA error"),
            ("Error in loader:\n  no such key\nand a list", "Error in loader: no such key"),
            ("\n\n  late\n", "late"),
            ("", ""),
            ("x" * 5000, "x" * exceptions.MOST_TEXT),
        ):
            self.assertEqual(exceptions.summary(ValueError(text)), want)


class ReportFile(unittest.TestCase):
    def test_a_file_is_whole_or_not_there(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, {"GRESIZE_VGPU_REPORT_DIR": folder}):
            report_file.write("python-1.json", ["{", "}"])
            report_file.write_lines("events", [{"a": 1}, [2]])
            report_file.write("python-2.json", ["an earlier one, which knows of less"])
            with self.assertRaises(ZeroDivisionError):
                report_file.write("python-2.json", (1 / 0 for _ in "x"))
            self.assertFalse(os.path.exists(os.path.join(folder, ".python-2.json.part")))
            found = {path.name: path.read_text() for path in pathlib.Path(folder).glob("[!.]*")}
        self.assertEqual(found, {"python-1.json": "{}", "events-%d.jsonl" % os.getpid(): '{"a":1}\n[2]\n'})

    def test_threads_may_write_at_the_same_time(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, {"GRESIZE_VGPU_REPORT_DIR": folder}):
            faults = []

            def again(letter):
                try:
                    for _ in range(200):
                        report_file.write("r.json", [letter * 50] * 20)
                except OSError as e:
                    faults.append(e)

            threads = [threading.Thread(target=again, args=(letter,)) for letter in "abcd"]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(faults, [])
            self.assertEqual(os.listdir(folder), ["r.json"])
            text = pathlib.Path(folder, "r.json").read_text()
            self.assertEqual((len(text), len(set(text))), (1000, 1))

    def test_without_a_folder_nothing_is_written(self):
        with mock.patch.dict(os.environ, {}, clear=True):
            report_file.write("python-1.json", ["{}"])


class Tracebacks(unittest.TestCase):
    def test_our_frames_are_left_out_unless_nothing_would_be_left(self):
        def program():
            guard_of_program = tracebacks.trimmed  # a call from ours into the program's own
            raise ValueError(guard_of_program)

        try:
            program()
        except ValueError as e:
            theirs = e.__traceback__
        try:
            settings.number("PATH", 0, program)
        except TypeError as e:  # program takes no argument
            both = e.__traceback__
        names = lambda tb: [] if tb is None else [tb.tb_frame.f_code.co_name] + names(tb.tb_next)  # noqa: E731
        self.assertEqual(names(tracebacks.trimmed(theirs)), names(theirs))
        self.assertIn("number", names(both))
        self.assertNotIn("number", names(tracebacks.trimmed(both)))
        ours = both.tb_next
        self.assertIs(tracebacks.trimmed(ours), ours)


class Ends(unittest.TestCase):
    def ended(self, leave):
        """What a process that stops writes to its report, and how it ends."""
        r, w = os.pipe()
        pid = os.fork()
        if not pid:
            class Process(watched.Watched):
                def leave_report(self, reason):
                    os.write(w, reason.encode())
                    leave(self)

            try:
                with mock.patch.object(report_file, "hide_from_measurement"):
                    Process().stop("stopped")
            finally:
                os._exit(1)  # it was not the end
        os.close(w)
        with os.fdopen(r) as f:
            text = f.read()
        return text, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    def test_a_process_ends_once_with_its_report(self):
        self.assertEqual(self.ended(lambda process: None), ("stopped", 0))
        self.assertEqual(self.ended(lambda process: process.stop("again")), ("stopped", 0))

    def test_a_fault_of_the_report_ends_it_all_the_same(self):
        def fails(process):
            raise RuntimeError

        self.assertEqual(self.ended(fails), ("stopped", 0))

    def test_a_forked_child_begins_anew(self):
        process = watched.Watched()
        lock, process.done = process.lock, True
        process.begin_anew()
        self.assertFalse(process.done)
        self.assertIsNot(process.lock, lock)


if __name__ == "__main__":
    unittest.main()
