"""What an operator of a step is said to read and write."""
import unittest

from gresize_vgpu.record.operators import _bytes


class Bytes(unittest.TestCase):
    def test_all_of_it(self):
        self.assertEqual(_bytes("relu", [(400, 100)], [(400, 100)]), 800)

    def test_a_loss_reads_one_number_of_each_row(self):
        logits, targets, loss = (8192 * 50_000 * 4, 8192 * 50_000), (8192 * 8, 8192), (4, 1)
        self.assertEqual(_bytes("nll_loss_forward", [logits, targets], [loss, loss]), 8192 * 32 + 8192 * 8 + 8)
        # As many classes as are fetched at once, or fewer: all is read.
        self.assertEqual(_bytes("nll_loss_forward", [(64 * 4 * 2, 64 * 2), (64 * 8, 64)], [loss]), 64 * 4 * 2 + 64 * 8 + 4)

    def test_its_gradient_is_written_and_its_input_is_not_read(self):
        logits, targets, loss = (8192 * 50_000 * 4, 8192 * 50_000), (8192 * 8, 8192), (4, 1)
        self.assertEqual(_bytes("nll_loss_backward", [loss, logits, targets, loss], [logits]), logits[0] + targets[0] + 8)

    def test_rows_of_a_table(self):
        table, rows, out = (50_000 * 1024 * 4, 50_000 * 1024), (512 * 8, 512), (512 * 1024 * 4, 512 * 1024)
        self.assertEqual(_bytes("embedding", [table, rows], [out]), 2 * out[0] + rows[0])
        self.assertEqual(_bytes("index_put_", [table, rows, out], [table]), 3 * out[0] + rows[0])

    def test_too_few_tensors_on_the_card(self):
        for name in ("embedding", "index_put_", "nll_loss_forward", "nll_loss_backward"):
            self.assertEqual(_bytes(name, [(40, 10)], [(4, 1)]), 44)
        self.assertEqual(_bytes("nll_loss_backward", [], [(4, 1)]), 4)
