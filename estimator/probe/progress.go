package probe

import (
	"strings"
	"time"

	"github.com/gresize/gresize/estimator/trace"
)

// ProgressInterval is how often Options.Progress is called.
const ProgressInterval = 250 * time.Millisecond

const progressLineBytes = 256

// Progress is what has been seen of a command that still runs.
type Progress struct {
	Elapsed time.Duration
	// TorchSeen says that a process has begun to use PyTorch.
	TorchSeen bool
	Steps     int
	// Answered says that a first answer is known, and that the command is followed further in time-lapse.
	Answered bool
	// Ranks is the number of cards in use, and PeakReservedBytes the most that PyTorch has reserved on one of them.
	Ranks             int
	PeakReservedBytes int64
	// LastLine is the last line that the command printed.
	LastLine string
}

// watch reports progress until the function that it returns is called.
func (r *run) watch(reportDir string, begin time.Time) (stop func()) {
	if r.options.Progress == nil {
		return func() {}
	}
	quit, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		ticker := time.NewTicker(ProgressInterval)
		defer ticker.Stop()
		for {
			select {
			case <-quit:
				return
			case <-ticker.C:
				r.options.Progress(r.progress(reportDir, begin))
			}
		}
	}()
	return func() {
		close(quit)
		<-gone
	}
}

// progress reads the reports that are there. What cannot be read yet, or at all, is left out: the end of the run judges it.
func (r *run) progress(reportDir string, begin time.Time) Progress {
	p := Progress{Elapsed: time.Since(begin)}
	if lines := strings.Split(strings.TrimSpace(r.output.text()), "\n"); len(lines) > 0 {
		p.LastLine = trace.Clip([]byte(strings.TrimSpace(lines[len(lines)-1])), progressLineBytes)
	}
	reports, err := r.options.Engine.Read(reportDir)
	if err != nil {
		return p
	}
	p.TorchSeen, p.Steps, p.Ranks = reports.TorchSeen, reports.Steps, len(reports.Ranks)
	p.PeakReservedBytes, p.Answered = reports.PeakReservedBytes, reports.TimeLapse
	return p
}
