package client

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// accountingFields have no text of a user in them.
const accountingFields = "JobIDRaw,UID,State,ExitCode,ElapsedRaw,AllocTRES,TRESUsageInMax,TRESUsageInTot"

// AccountingTimeout is for one request to Slurm's accounting, which many may ask at once.
const AccountingTimeout = 30 * time.Second

const (
	maxAccountingBytes = 8 << 20
	// mostBytes is above any memory; a larger number is none.
	mostBytes = int64(1) << 50
	// leastPeakBytes is less than any CUDA context and any shell: a smaller number has another unit than bytes, or was sampled too early.
	leastPeakBytes = 1 << 20
)

// cellsOf are the cells of a line.
var cellsOf = strings.Count(accountingFields, ",") + 1

// Accounted is one job in Slurm's accounting.
type Accounted struct {
	JobID, UID  uint32
	State, Exit string
	Elapsed     time.Duration
	GPUs        int64
	// PeakBytes is of the GPU memory; 0: Slurm does not gather it here. HostPeakBytes is of the largest step, all its tasks together; 0: not known.
	PeakBytes, HostPeakBytes int64
}

// Accounting asks slurmdbd, by the command sacct at a path, for some jobs. Jobs of which it knows nothing are left out.
func (c *Client) Accounting(ctx context.Context, sacct string, ids []uint32) ([]Accounted, error) {
	words := make([]string, len(ids))
	for i, id := range ids {
		words[i] = strconv.FormatUint(uint64(id), 10)
	}
	var out []byte
	err := c.runWithin(ctx, c.config.AccountingTimeout, sacct, []string{"--noheader", "--parsable2", "--noconvert", "--allusers", "--jobs=" + strings.Join(words, ","), "--format=" + accountingFields}, func(from io.Reader) error {
		var err error
		if out, err = io.ReadAll(io.LimitReader(from, maxAccountingBytes+1)); err == nil && len(out) > maxAccountingBytes {
			err = fmt.Errorf("more than %d bytes", maxAccountingBytes)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return parseAccounting(string(out)), nil
}

// Unaccounted are the fields that this sacct has not, of those that Accounting asks for. Before 25.05 a sacct without accounting does not say.
func (c *Client) Unaccounted(ctx context.Context, sacct string) ([]string, error) {
	has := map[string]bool{}
	err := c.run(ctx, sacct, []string{"--helpformat"}, func(out io.Reader) error {
		text, err := io.ReadAll(io.LimitReader(out, maxVersionBytes*16))
		for _, word := range strings.Fields(string(text)) {
			has[word] = true
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(strings.Split(accountingFields, ","), func(field string) bool { return has[field] }), nil
}

// parseAccounting reads the lines of sacct --parsable2 --noconvert: one of each job, and those of its steps, of which the largest peak counts.
func parseAccounting(out string) []Accounted {
	var all []Accounted
	at := map[uint32]int{}
	for line := range strings.Lines(out) {
		cells := strings.Split(strings.TrimRight(line, "\r\n"), "|")
		if len(cells) != cellsOf {
			continue
		}
		name, _, isStep := strings.Cut(cells[0], ".")
		id, err := strconv.ParseUint(name, 10, 32)
		if err != nil {
			continue
		}
		i, known := at[uint32(id)]
		if !known {
			uid, err := strconv.ParseUint(cells[1], 10, 32)
			elapsed, err2 := strconv.ParseUint(cells[4], 10, 31)
			if isStep || err != nil || err2 != nil {
				continue
			}
			state, _, _ := strings.Cut(cells[2], " ") // "CANCELLED by 1001"
			i = len(all)
			at[uint32(id)] = i
			all = append(all, Accounted{JobID: uint32(id), UID: uint32(uid), State: state, Exit: cells[3], Elapsed: time.Duration(elapsed) * time.Second, GPUs: accounted(cells[5], "gres/gpu")})
		}
		if peak := accounted(cells[6], "gres/gpumem"); peak >= leastPeakBytes {
			all[i].PeakBytes = max(all[i].PeakBytes, peak)
		}
		// The sum over the tasks is not less than the largest of them, where a release fills in both.
		if host := max(accounted(cells[6], "mem"), accounted(cells[7], "mem")); host >= leastPeakBytes {
			all[i].HostPeakBytes = max(all[i].HostPeakBytes, host)
		}
	}
	return all
}

// accounted is one count of a list such as cpu=8,gres/gpu=1,mem=4G; 0 when it is not there.
func accounted(list, name string) int64 {
	for entry := range strings.SplitSeq(list, ",") {
		key, value, _ := strings.Cut(entry, "=")
		if key != name || value == "" {
			continue
		}
		scale := 1.0
		if i := strings.IndexByte("KMGT", value[len(value)-1]); i >= 0 {
			scale, value = float64(int64(1)<<(10*(i+1))), value[:len(value)-1]
		}
		n, err := strconv.ParseFloat(value, 64)
		if err != nil || !(n >= 0) || n*scale > float64(mostBytes) {
			return 0
		}
		return int64(n * scale)
	}
	return 0
}
