package client

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// column is one field of squeue's --Format, printed to the right of its place.
type column struct {
	name  string
	width int
	// exact says that a value that fills its place may be longer, and that the job is not to be acted upon then.
	exact bool
}

// columns are the fields of a look at the queue; squeue has them all from 20.11 to 26.05 (src/squeue/opts.c), prints each byte for byte in its place and cuts what does
// not fit (_print_str in src/squeue/print.c). So every record has the same length, and no text of a user can make a line that is taken for one: a text with line breaks in it breaks the
// record of its own job into pieces, each of them shorter than a record.
var columns = []column{
	{"JobID", 11, true}, {"JobArrayID", 24, false}, {"UserID", 12, true}, {"State", 24, true}, {"Reason", 64, false},
	{"Partition", 128, true}, {"Account", 64, true}, {"QOS", 64, true}, {"EligibleTime", 20, true}, {"StartTime", 20, true}, {"BatchHost", 64, false},
	{"RestartCnt", 8, false}, {"TimeUsed", 16, false}, {"exit_code", 12, false}, {"MinMemory", 12, true},
	{"cpus-per-tres", 64, true}, {"mem-per-tres", 64, true}, {"tres-per-job", 128, true}, {"tres-per-node", 128, true}, {"tres-per-socket", 128, true}, {"tres-per-task", 128, true},
	{"Feature", 256, true}, {"Name", 80, false}, {"admin_comment", 1024, true},
}

// wide are the same with room for all that Slurm takes, for one job: 1,024 bytes, and more for what the site itself writes into AdminComment.
var wide = func() []column {
	all := make([]column, len(columns))
	for i, c := range columns {
		if all[i] = c; c.width >= 64 {
			all[i].width = 1100
		}
		if c.name == "admin_comment" {
			all[i].width = 16 << 10
		}
	}
	return all
}()

// format is the value of --Format.
func format(columns []column) string {
	words := make([]string, len(columns))
	for i, c := range columns {
		words[i] = c.name + ":." + strconv.Itoa(c.width)
	}
	return strings.Join(words, ",")
}

// noHeader is the option without which squeue prints headings, as wide as the columns.
const noHeader = "--noheader"

func queueArguments(columns []column, more ...string) []string {
	return append([]string{noHeader, "--all", "--local", "--states=all", "--Format=" + format(columns)}, more...)
}

// QueueArguments make squeue print what ReadQueue reads.
func QueueArguments() []string { return queueArguments(columns) }

// ReadQueue calls each for every job in what squeue printed.
func ReadQueue(out io.Reader, each func(Job)) error { return readQueue(out, columns, each) }

// JobArguments make squeue print what ReadJob reads of one job.
func JobArguments(id uint32) []string {
	return queueArguments(wide, "--jobs="+strconv.FormatUint(uint64(id), 10))
}

// ReadJob finds a job in what squeue printed.
func ReadJob(out io.Reader, id uint32) (found Job, ok bool, err error) {
	err = readQueue(out, wide, func(j Job) {
		if j.ID == id {
			found, ok = j, true
		}
	})
	return found, ok, err
}

// EachJob calls each for every job that the controller knows, as it reads them. No text that a user chose can make up a job here. A value that may not be whole makes its job
// Ambiguous: Job has room for it.
func (c *Client) EachJob(ctx context.Context, each func(Job)) error {
	return c.run(ctx, c.beside("squeue"), QueueArguments(), func(out io.Reader) error { return ReadQueue(out, each) })
}

// Job asks for one job. It returns ErrNoJob when the controller does not know it.
func (c *Client) Job(ctx context.Context, id uint32) (Job, error) {
	var found Job
	var there bool
	err := c.run(ctx, c.beside("squeue"), JobArguments(id), func(out io.Reader) (err error) {
		found, there, err = ReadJob(out, id)
		return err
	})
	var failed *CommandError
	switch {
	case errors.As(err, &failed):
		// squeue has one exit code for every error: ask whether the controller answers at all.
		if pingErr := c.Ping(ctx); pingErr != nil {
			return Job{}, fmt.Errorf("job %d: %w", id, pingErr)
		}
		return Job{}, fmt.Errorf("job %d: %w", id, ErrNoJob)
	case err != nil:
		return Job{}, err
	case !there:
		return Job{}, fmt.Errorf("job %d: %w", id, ErrNoJob)
	}
	return found, nil
}

// Unreadable are the columns that this squeue does not print as a look at the queue reads them, found by their headings; none is what a squeue of a known release has.
// An error says that it could not be asked, as where no slurmctld answers.
func (c *Client) Unreadable(ctx context.Context) ([]string, error) {
	var missing []string
	for _, all := range [][]column{columns, wide} {
		whole, err := c.prints(ctx, all)
		if whole {
			continue
		}
		found := 0
		for _, one := range all {
			there, oneErr := c.prints(ctx, []column{one})
			if there {
				found++
			} else if oneErr == nil || isExit(oneErr) {
				missing = append(missing, one.name+":."+strconv.Itoa(one.width))
			}
		}
		switch {
		case found == 0:
			return nil, fmt.Errorf("squeue: %w", err)
		case found == len(all):
			missing = append(missing, "all in one line")
		}
	}
	return missing, nil
}

// prints says whether squeue prints a line of headings as long as a record.
func (c *Client) prints(ctx context.Context, columns []column) (bool, error) {
	want, got := 0, -1
	for _, column := range columns {
		want += column.width
	}
	arguments := slices.DeleteFunc(queueArguments(columns), func(a string) bool { return a == noHeader })
	err := c.run(ctx, c.beside("squeue"), arguments, func(out io.Reader) error {
		from := bufio.NewReader(out)
		first, err := from.ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		got = len(strings.TrimSuffix(first, "\n"))
		return discard(from)
	})
	if err == nil && got != want {
		err = fmt.Errorf("headings of %d bytes, not %d", got, want)
	}
	return err == nil, err
}

func isExit(err error) bool {
	var exit *CommandError
	return errors.As(err, &exit)
}

// readQueue calls each for every line that has the length of a record.
func readQueue(out io.Reader, columns []column, each func(Job)) error {
	length := 0
	for _, c := range columns {
		length += c.width
	}
	lines := bufio.NewScanner(out)
	lines.Buffer(make([]byte, 0, length+2), length+2)
	lines.Split(splitLines)
	for lines.Scan() {
		if line := lines.Bytes(); len(line) == length {
			if j, ok := parseRecord(line, columns); ok {
				each(j)
			}
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return fmt.Errorf("a line of more than %d bytes, which is none of squeue's", length)
	}
	return lines.Err()
}

// splitLines is bufio.ScanLines without its care for a carriage return, which may be the last byte of a value.
func splitLines(data []byte, atEOF bool) (advance int, token []byte, err error) {
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		return i + 1, data[:i], nil
	}
	if atEOF && len(data) > 0 {
		return len(data), data, nil
	}
	return 0, nil, nil
}

// OutputFiles are the files of a batch job's output as its owner named them, with what stands for the job's number replaced. Empty is what the job has not.
// They come from scontrol, for squeue knows the names without the numbers on some releases. Whatever it prints of one job is its owner's word on his own files.
func (c *Client) OutputFiles(ctx context.Context, id uint32) (stdout, stderr string, err error) {
	number := strconv.FormatUint(uint64(id), 10)
	err = c.run(ctx, c.config.Scontrol, []string{"-a", "show", "job", number}, func(out io.Reader) error {
		lines := bufio.NewScanner(out)
		lines.Buffer(make([]byte, 0, 64<<10), maxLineBytes)
		ours := false // of an array each task has a record
		for lines.Scan() {
			line := lines.Text()
			if strings.HasPrefix(line, "JobId=") {
				ours = strings.HasPrefix(line, "JobId="+number+" ")
			}
			if !ours {
				continue
			}
			if path, ok := strings.CutPrefix(line, "   StdErr="); ok {
				stderr = path
			}
			if path, ok := strings.CutPrefix(line, "   StdOut="); ok {
				stdout = path
			}
		}
		return lines.Err()
	})
	return stdout, stderr, err
}
