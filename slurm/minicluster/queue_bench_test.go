package minicluster

import (
	"encoding/json"
	"fmt"
	"io"
	"syscall"
	"testing"
	"time"

	"github.com/gresize/gresize/slurm/client"
)

// asJSON is what `squeue --json` calls the values that a reading of the queue takes, in its form of 24.11 and later; those that may be unset are objects.
type asJSON struct {
	Jobs []struct {
		ID           uint32          `json:"job_id"`
		UserID       uint32          `json:"user_id"`
		State        []string        `json:"job_state"`
		Reason       string          `json:"state_reason"`
		Partition    string          `json:"partition"`
		Account      string          `json:"account"`
		QOS          string          `json:"qos"`
		Eligible     json.RawMessage `json:"eligible_time"`
		Start        json.RawMessage `json:"start_time"`
		Features     string          `json:"features"`
		Name         string          `json:"name"`
		AdminComment string          `json:"admin_comment"`
		PerJob       string          `json:"tres_per_job"`
		PerNode      string          `json:"tres_per_node"`
		PerSocket    string          `json:"tres_per_socket"`
		PerTask      string          `json:"tres_per_task"`
	} `json:"jobs"`
}

// BenchmarkQueue reads a queue of real jobs in columns, as gresized does, and as JSON, in turn: the processor time of squeue and of its reader together.
func BenchmarkQueue(b *testing.B) {
	const jobs = 300
	for _, name := range Releases() {
		b.Run(name, func(b *testing.B) {
			options := Default()
			options.Root = RootForTest(b, name)
			c := ForTest(b, options)
			for range jobs {
				if _, err := c.Sbatch(b.Context(), DefaultUser, "--begin=now+1hour", "--gres=gpu:1", "--constraint=gpu80g", "--wrap", "true"); err != nil {
					b.Fatal(err)
				}
			}
			columns := way{args: client.QueueArguments(), read: func(out io.Reader) (n int, err error) {
				err = client.ReadQueue(out, func(client.Job) { n++ })
				return n, err
			}}
			whole := way{args: []string{"--json", "--all", "--local", "--states=all"}, read: func(out io.Reader) (int, error) {
				var queue asJSON
				err := json.NewDecoder(out).Decode(&queue)
				return len(queue.Jobs), err
			}}
			for b.Loop() {
				for _, w := range []*way{&columns, &whole} {
					if n := w.run(b, c); n != jobs {
						b.Fatalf("%d jobs by squeue %v", n, w.args[0])
					}
				}
			}
			report := func(words string, w way) {
				b.ReportMetric(float64(w.took.Microseconds())/float64(b.N)/jobs, words+"-µs/job")
				b.ReportMetric(float64(w.bytes)/float64(b.N)/jobs, words+"-bytes/job")
			}
			report("columns", columns)
			report("json", whole)
			b.ReportMetric(float64(whole.took)/float64(columns.took), "json/columns")
		})
	}
}

// way is one way to read the queue, and what it has taken so far.
type way struct {
	args  []string
	read  func(io.Reader) (int, error)
	took  time.Duration
	bytes int64
}

// run reads the queue once and returns how many jobs were read.
func (w *way) run(b *testing.B, c *Cluster) int {
	cmd, err := c.Command(b.Context(), "root", "squeue", w.args...)
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	counted := &counter{from: out}
	before := ownTime(b)
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	n, err := w.read(counted)
	if _, rest := io.Copy(io.Discard, counted); err == nil {
		err = rest
	}
	if wait := cmd.Wait(); err == nil {
		err = wait
	}
	if err != nil {
		b.Fatal(fmt.Errorf("squeue %v: %w", w.args[0], err))
	}
	w.took += ownTime(b) - before + cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	w.bytes += counted.bytes
	return n
}

// ownTime is the processor time of this process so far.
func ownTime(b *testing.B) time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

type counter struct {
	from  io.Reader
	bytes int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	c.bytes += int64(n)
	return n, err
}
