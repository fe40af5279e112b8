// Package reader reads what came from a user's process, a bundle, in a process
// of its own that can do nothing else: its memory and its time on the CPU are
// bounded, it opens no file and speaks to nobody. What a bundle breaks is its
// own answer. One that ended its reader is not read again, in this life of the
// daemon or in a later one.
package reader

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/analysis/plot"
	"github.com/gresize/gresize/estimator/gpu"
	"github.com/gresize/gresize/estimator/methods/history"
	"github.com/gresize/gresize/internal/printable"
	"golang.org/x/sys/unix"
)

// Timeout bounds one reading by the clock; the time on the CPU is bounded by the kernel, see limits.
const Timeout = 40 * time.Second

const (
	// maxAnswerBytes is above a picture and its owners, as JSON.
	maxAnswerBytes = 16 << 20
	// maxQuestionBytes is above the rows of a history and a GPU profile.
	maxQuestionBytes = 16 << 20
	// keptWords of what a reader writes before it dies are kept: Go says why it ends in its first line.
	keptWords = 300
)

// Question is what is to be found out about a bundle: an estimate by a method, or a picture.
type Question struct {
	// Method is the name of a bundled estimator, asked for a card.
	Method string       `json:"method,omitempty"`
	Card   *gpu.Profile `json:"card,omitempty"`
	// Earlier are the runs that the estimator history goes by.
	Earlier *Earlier `json:"earlier,omitempty"`
	Draw    *Draw    `json:"draw,omitempty"`
}

// Earlier is what is known of earlier runs of a job.
type Earlier struct {
	Rows []history.Row `json:"rows"`
	Job  history.Job   `json:"job"`
}

// Draw asks for the picture of one GPU.
type Draw struct {
	Rank   int    `json:"rank"`
	Title  string `json:"title"`
	Owners int    `json:"owners"`
}

// Drawing is a picture, and what stands around it.
type Drawing struct {
	Ranks    int              `json:"ranks"`
	SVG      []byte           `json:"svg"`
	Height   int              `json:"height"`
	Subtitle string           `json:"subtitle"`
	Owners   []plot.OwnerLine `json:"owners"`
}

// Answer is what was found out.
type Answer struct {
	// Fault says what is wrong with the bundle; then there is nothing else.
	Fault    string              `json:"fault,omitempty"`
	Estimate *estimator.Estimate `json:"estimate,omitempty"`
	Drawing  *Drawing            `json:"drawing,omitempty"`
	// Unfiltered says why this machine has no filter of system calls.
	Unfiltered string `json:"unfiltered,omitempty"`
}

// ErrEnded means that a bundle ended its reader, now or earlier.
var ErrEnded = errors.New("reading the run's record was ended")

// Marks remember which bundles are being read, longer than this process lives. *spool.Spool is the real one.
type Marks interface {
	// BeginReading marks a bundle by the hash of its content; barred says that it is not to be read any more: it ended its reader, or its reading never ended.
	BeginReading(sum string) (barred bool, err error)
	// BarReading marks a bundle as one that ended its reader.
	BarReading(sum string) error
	// EndReading takes the mark away.
	EndReading(sum string) error
}

// Reader starts a process for each question.
type Reader struct {
	// Command is a program, with arguments, that calls Serve.
	Command []string
	Marks   Marks
	Warn    func(why string)

	mu      sync.Mutex
	reading map[string]chan struct{}
	warned  sync.Once
}

// Ask has a bundle read. An error that wraps ErrEnded says that the bundle was too much for its reader; another one is no fault of the bundle's.
func (r *Reader) Ask(ctx context.Context, bundle *os.File, q Question) (Answer, error) {
	sum, err := hashOf(bundle)
	if err != nil {
		return Answer{}, fmt.Errorf("read bundle: %w", err)
	}
	done, err := r.turn(ctx, sum)
	if err != nil {
		return Answer{}, err
	}
	defer done()
	barred, err := r.Marks.BeginReading(sum)
	if err != nil {
		return Answer{}, err
	}
	if barred {
		return Answer{}, fmt.Errorf("%w earlier, and it is not read again", ErrEnded)
	}
	a, err := r.run(ctx, bundle, q)
	if errors.Is(err, ErrEnded) {
		err = errors.Join(err, r.Marks.BarReading(sum))
	} else {
		err = errors.Join(err, r.Marks.EndReading(sum))
	}
	if a.Unfiltered != "" && r.Warn != nil {
		r.warned.Do(func() { r.Warn(a.Unfiltered) })
	}
	if err == nil && a.Fault != "" {
		err = errors.New(printable.Clip(a.Fault, estimator.MaxDetailBytes))
	}
	return a, err
}

func hashOf(bundle *os.File) (string, error) {
	info, err := bundle.Stat()
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, io.NewSectionReader(bundle, 0, info.Size())); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// turn waits until nobody else reads the same bundle: its mark would be taken for that of a dead reader.
func (r *Reader) turn(ctx context.Context, sum string) (done func(), err error) {
	for {
		r.mu.Lock()
		other := r.reading[sum]
		if other == nil {
			if r.reading == nil {
				r.reading = map[string]chan struct{}{}
			}
			mine := make(chan struct{})
			r.reading[sum] = mine
			r.mu.Unlock()
			return func() {
				r.mu.Lock()
				delete(r.reading, sum)
				r.mu.Unlock()
				close(mine)
			}, nil
		}
		r.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// run starts a reader and waits for its answer. The kernel kills it when the thread that started it ends, as it does with the daemon; so that thread is kept.
func (r *Reader) run(ctx context.Context, bundle *os.File, q Question) (a Answer, err error) {
	question, err := json.Marshal(q)
	if err != nil {
		return Answer{}, err
	}
	limited, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		a, err = r.child(limited, bundle, question)
	}()
	<-ended
	if ctx.Err() != nil {
		return Answer{}, ctx.Err()
	}
	return a, err
}

func (r *Reader) child(ctx context.Context, bundle *os.File, question []byte) (Answer, error) {
	in, out, err := os.Pipe()
	if err != nil {
		return Answer{}, err
	}
	defer in.Close()
	defer out.Close()
	answer, words := &bounded{most: maxAnswerBytes}, &bounded{most: keptWords}
	cmd := exec.CommandContext(ctx, r.Command[0], r.Command[1:]...)
	// One processor: what a bundle can cost is the reader's time on the CPU.
	cmd.Env = []string{"GOMAXPROCS=1", "TZ=UTC", asked + "=1"}
	cmd.Dir = "/"
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = bundle, answer, words, []*os.File{in}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.WaitDelay = time.Second
	// What a library of the daemon opened without the flag is none of a reader's business.
	if err := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil && !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EINVAL) {
		return Answer{}, err
	}
	if err := cmd.Start(); err != nil {
		return Answer{}, fmt.Errorf("start the reader of bundles: %w", err)
	}
	_ = in.Close()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_, _ = out.Write(question) // a reader that is gone has no answer either
		_ = out.Close()
	}()
	err = cmd.Wait()
	_ = in.Close()
	<-sent
	var a Answer
	switch {
	case errors.Is(err, exec.ErrWaitDelay) || err == nil && answer.over:
		return Answer{}, fmt.Errorf("%w: its answer has no end", ErrEnded)
	case err != nil:
		return Answer{}, fmt.Errorf("%w: %s", ErrEnded, ending(ctx, cmd, words.String()))
	case json.Unmarshal(answer.Bytes(), &a) != nil:
		return Answer{}, fmt.Errorf("%w: it has no answer", ErrEnded)
	}
	return a, nil
}

// ending says how a reader ended that was to answer.
func ending(ctx context.Context, cmd *exec.Cmd, words string) string {
	used := ""
	if usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		used = fmt.Sprintf(" after %.1f s on the CPU with %d MiB", (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds(), usage.Maxrss>>10)
	}
	first, _, _ := strings.Cut(words, "\n")
	if first != "" {
		first = ": " + printable.Clip(first, 100)
	}
	if ctx.Err() != nil {
		return fmt.Sprintf("it took more than %s%s", Timeout, used)
	}
	return cmd.ProcessState.String() + used + first
}

// bounded keeps the beginning of what is written to it, and takes all.
type bounded struct {
	bytes.Buffer
	most int
	over bool
}

func (b *bounded) Write(p []byte) (int, error) {
	n := min(len(p), b.most-b.Len())
	b.over = b.over || n < len(p)
	b.Buffer.Write(p[:n])
	return len(p), nil
}
