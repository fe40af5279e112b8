package jobs

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gresize/gresize/slurm/wire"
)

// hostile are submissions that were made to be slow, as large as the plugin sends them.
func hostile() map[string]*wire.Request {
	scrambled := func() string {
		var spans []string
		for i := range 5700 {
			spans = append(spans, fmt.Sprintf("%d-%d", i*701, i*701+700))
		}
		rand.New(rand.NewPCG(1, 2)).Shuffle(len(spans), func(i, j int) { spans[i], spans[j] = spans[j], spans[i] })
		return strings.Join(spans, ",")[:60_000]
	}
	odd := func(change func(*wire.Request)) *wire.Request {
		r := sample()
		r.MemPerTres, r.CPUsPerTres = "gres:gpu:1024", "gres:gpu:4" // what the rewrite looks through script and environment for
		change(r)
		r.ScriptTotal, r.EnvironmentTotal, r.ArgvTotal = uint64(len(r.Script)), uint32(len(r.Environment)), uint32(len(r.Argv))
		return r
	}
	whole := func(line string) string { return "#!/bin/sh\n" + strings.Repeat(line, (1<<20-10)/len(line)) }
	var variables []string
	for i := range 8000 {
		variables = append(variables, fmt.Sprintf("SLURM_V%d=%d", 8000-i, i))
	}
	return map[string]*wire.Request{
		"an array of four million":   odd(func(r *wire.Request) { r.ArrayInx = "0-4000000" }),
		"and of every second":        odd(func(r *wire.Request) { r.ArrayInx = "0-4000000:2,1-3999999:2" }),
		"an array out of order":      odd(func(r *wire.Request) { r.ArrayInx = scrambled() }),
		"a script of empty lines":    odd(func(r *wire.Request) { r.Script = whole("\n") }),
		"a script of #GRESIZE lines": odd(func(r *wire.Request) { r.Script = whole("#GRESIZE x\n") }),
		"a script of srun":           odd(func(r *wire.Request) { r.Script = whole("srun --mem-per-gpu=$SLURM_MEM_PER_GPU \\\n") }),
		"a script of one line":       odd(func(r *wire.Request) { r.Script = whole("$SLURM_TRES_PER_TASK ") }),
		"many variables":             odd(func(r *wire.Request) { r.Environment = variables }),
		"a constraint of many words": odd(func(r *wire.Request) { r.Features = strings.Repeat("(a|b)&", 2000) + "c" }),
		"many resources":             odd(func(r *wire.Request) { r.TresPerNode = strings.Repeat("gres:gpu:a:1,", 2000) + "gres:gpu:1" }),
	}
}

// processorTime is what this thread has used.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestNoSubmissionIsSlow: the plugin waits 50 ms by default, and three answers that are late make it ask for nobody. Nothing that a user can write takes half of that,
// nor more memory than a few copies of what was sent.
func TestNoSubmissionIsSlow(t *testing.T) {
	runtime.LockOSThread() // for its processor time: how busy the machine is is not asked
	defer runtime.UnlockOSThread()
	const limit, mostBytes = 25 * time.Millisecond, 24 << 20
	for name, r := range hostile() {
		b := newBench(t, Off, time.Minute)
		settings := *b.manager.settings()
		settings.Mode, settings.Arrays = Enforce, true
		settings.Rules.ShardBytes, settings.Rules.Host.Lower = gib, true
		best, allocated := time.Hour, uint64(0)
		for range 8 { // the machine may be busy
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			b.manager.Configure(settings)
			began := processorTime(t)
			reply := b.manager.Answer(r)
			best = min(best, processorTime(t)-began)
			runtime.ReadMemStats(&after)
			allocated = after.TotalAlloc - before.TotalAlloc
			if err := reply.Validate(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if best < limit {
				break
			}
		}
		t.Logf("%s: %s, %.1f MB", name, best.Round(10*time.Microsecond), float64(allocated)/1e6)
		if best > limit || allocated > mostBytes {
			t.Errorf("%s: %s, %d bytes", name, best, allocated)
		}
	}
}
