package reader

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime/debug"

	"github.com/gresize/gresize/estimator/analysis/plot"
	"github.com/gresize/gresize/estimator/methods/bundled"
	"github.com/gresize/gresize/estimator/trace"
	"github.com/gresize/gresize/internal/printable"
	"golang.org/x/sys/unix"
)

// asked is the variable that makes a program a reader.
const asked = "GRESIZE_READER"

// questionFile is the descriptor of the question.
const questionFile = 3

// limits of a reader: beyond them the kernel ends it. An ordinary bundle takes a tenth of a second and 60 MiB, the largest of a sound program a few seconds and some hundred.
const (
	limitMemoryBytes = 1 << 30
	limitCPUSeconds  = 20
	limitFiles       = 16
	limitStackBytes  = 64 << 20
	// maxPictureBytes is far above the picture of any program; one that is larger was made to be so.
	maxPictureBytes = 4 << 20
)

// Asked says whether this process was started to be a reader.
func Asked() bool { return os.Getenv(asked) != "" }

// Serve reads one question and one bundle, answers, and returns the exit status.
func Serve() int {
	a, err := serve()
	if err != nil {
		fmt.Fprintln(os.Stderr, "gresized reader:", err)
		return 1
	}
	data, err := json.Marshal(a)
	if err == nil {
		_, err = os.Stdout.Write(data)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "gresized reader:", err)
		return 1
	}
	return 0
}

func serve() (Answer, error) {
	var q Question
	data, err := io.ReadAll(io.LimitReader(os.NewFile(questionFile, "question"), maxQuestionBytes))
	if err == nil {
		err = json.Unmarshal(data, &q)
	}
	if err != nil {
		return Answer{}, fmt.Errorf("its question: %w", err)
	}
	info, err := os.Stdin.Stat()
	if err != nil {
		return Answer{}, err
	}
	if err := confine(limitCPUSeconds); err != nil {
		return Answer{}, err
	}
	unfiltered := ""
	if err := filterCalls(); err != nil {
		unfiltered = err.Error()
	}
	a := answer(q, info.Size())
	a.Unfiltered = unfiltered
	return a, nil
}

// confine sets the limits. Of all processes of the machine this one is the first to go when memory is short, and the last to run.
func confine(cpuSeconds uint64) error {
	for resource, most := range map[int]uint64{
		unix.RLIMIT_DATA: limitMemoryBytes, unix.RLIMIT_AS: 4 * limitMemoryBytes, unix.RLIMIT_CPU: cpuSeconds, unix.RLIMIT_NOFILE: limitFiles, unix.RLIMIT_FSIZE: 0, unix.RLIMIT_CORE: 0,
	} {
		if err := unix.Setrlimit(resource, &unix.Rlimit{Cur: most, Max: most}); err != nil {
			return fmt.Errorf("set its limits: %w", err)
		}
	}
	debug.SetMemoryLimit(limitMemoryBytes * 3 / 4)
	debug.SetMaxStack(limitStackBytes)
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0) // a service manager may forbid either
	_ = unix.Setpriority(unix.PRIO_PROCESS, 0, 5)
	return nil
}

func answer(q Question, size int64) (a Answer) {
	defer func() {
		if p := recover(); p != nil {
			a = Answer{Fault: fmt.Sprintf("its record cannot be read: %.500v", p)}
		}
	}()
	b, err := trace.Read(os.Stdin, size)
	switch {
	case err != nil:
		err = fmt.Errorf("its record cannot be read: %w", err)
	case q.Draw != nil:
		a.Drawing, err = draw(b, *q.Draw)
	default:
		var m bundled.Method
		if q.Earlier != nil {
			m = bundled.History(q.Earlier.Rows, q.Earlier.Job)
		} else if m, err = bundled.Find(q.Method); err != nil {
			break
		}
		estimate, fault := m.FromBundle(b, q.Card)
		a.Estimate, err = &estimate, fault
	}
	if err != nil {
		return Answer{Fault: err.Error()}
	}
	return a
}

func draw(b *trace.Bundle, d Draw) (*Drawing, error) {
	if d.Rank < 0 || d.Rank >= len(b.Ranks) {
		return nil, fmt.Errorf("there is no GPU %d in its record, only %d", d.Rank, len(b.Ranks))
	}
	figure, err := plot.OfBundle(b, d.Rank, "the record")
	if err != nil {
		return nil, err
	}
	figure.Title = d.Title
	var svg bytes.Buffer
	if err := plot.SVG(&svg, figure); err != nil {
		return nil, err
	}
	if svg.Len() > maxPictureBytes {
		return nil, fmt.Errorf("it would have %d bytes, more than %d", svg.Len(), maxPictureBytes)
	}
	drawn := &Drawing{Ranks: len(b.Ranks), SVG: svg.Bytes(), Height: figure.Height(), Subtitle: printable.Clip(figure.Subtitle, 300), Owners: figure.Owners(d.Owners)}
	for i := range drawn.Owners {
		drawn.Owners[i].Name = printable.Clip(drawn.Owners[i].Name, 200)
	}
	return drawn, nil
}
