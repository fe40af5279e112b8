package client

import (
	"bufio"
	"context"
	"io"
	"strconv"
	"strings"
)

// MayRequeue says whether Slurm would put a job back into the queue: not one of --no-requeue, nor where JobRequeue=0 and its owner did not ask for it.
func (c *Client) MayRequeue(ctx context.Context, id uint32) (may bool, err error) {
	err = c.run(ctx, c.config.Scontrol, []string{"show", "job", strconv.FormatUint(uint64(id), 10)}, func(out io.Reader) error {
		lines := bufio.NewScanner(out)
		lines.Buffer(make([]byte, 0, 64<<10), maxLineBytes)
		for lines.Scan() {
			if value, ok := strings.CutPrefix(lines.Text(), "   Requeue="); ok {
				may = strings.HasPrefix(value, "1 ")
			}
		}
		return lines.Err()
	})
	return may && err == nil, err
}
