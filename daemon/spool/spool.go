// Package spool keeps, for as long as a job's life lasts and no longer, what
// must survive a restart but must not stand in the decision log: the job's
// script and environment, which may hold secrets, and the bundle of its probe.
// Bundles, which hold neither, may be kept for longer, up to a size.
// It knows files and nothing of what they mean.
package spool

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
)

// MaxBundleBytes bounds the bundle of one probe.
const MaxBundleBytes = 64 << 20

// maxJobBytes is above what the plugin sends: script, arguments and environment, as JSON.
const maxJobBytes = 8 << 20

const (
	jobSuffix    = ".job"
	bundleSuffix = ".bundle"
	partSuffix   = ".part"
)

// Job is what a probe needs of a job. Text is bytes, so all of it is kept as such.
type Job struct {
	Script      []byte   `json:"script"`
	Argv        [][]byte `json:"argv"`
	Environment [][]byte `json:"environment"`
	// Tasks is the number of tasks that the job asks for; 0 means 1.
	Tasks int `json:"tasks,omitempty"`
	// InnerSrunClear says that no variable of the job would make an srun inside it ask for the old resource after a change of its kind.
	InnerSrunClear bool `json:"inner_srun_clear,omitempty"`
	// MemMiB is the host memory of --mem; 0: not given.
	MemMiB uint64 `json:"mem_mib,omitempty"`
	// ByNode says that what the job asked for by the GPU is asked for by the node, or would be if it was not a shadow.
	ByNode bool `json:"by_node,omitempty"`
	// Array is set for a job array.
	Array *Array `json:"array,omitempty"`
}

// Bytes is what the script, the arguments and the environment take.
func (j *Job) Bytes() int {
	n := len(j.Script)
	for _, list := range [][][]byte{j.Argv, j.Environment} {
		for _, entry := range list {
			n += len(entry)
		}
	}
	return n
}

// Array is what a task of a job array sees of the array, and which of its tasks are tried.
type Array struct {
	Count uint32   `json:"count"`
	Min   uint32   `json:"min"`
	Max   uint32   `json:"max"`
	Step  uint32   `json:"step"`
	Tried []uint32 `json:"tried"`
}

// Spool is a folder that only its owner can read.
type Spool struct {
	dir string
	// mu guards the folder of kept bundles.
	mu        sync.Mutex
	keepBytes int64
}

var plainToken = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// Open makes the folder if it is not there and removes what an interrupted write left behind.
func Open(dir string) (*Spool, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open spool: %w", err)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return nil, fmt.Errorf("open spool: %w", err)
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && int(stat.Uid) != os.Geteuid() {
		return nil, fmt.Errorf("open spool: %s belongs to user %d, who could read and change what is in it, use chown", dir, stat.Uid)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("open spool: %s can be read by others (mode %04o): it holds environments of jobs, use chmod 700", dir, info.Mode().Perm())
	}
	parts, err := filepath.Glob(filepath.Join(dir, "*"+partSuffix))
	if err != nil {
		return nil, fmt.Errorf("open spool: %w", err)
	}
	for _, p := range parts {
		if err := os.Remove(p); err != nil {
			return nil, fmt.Errorf("open spool: %w", err)
		}
	}
	return &Spool{dir: dir}, nil
}

// PutJob stores a job.
func (s *Spool) PutJob(token string, j Job) error {
	return s.PutJobs(func(yield func(string, Job) bool) { yield(token, j) })
}

// writers is how many files are written at once: the file system makes several durable with one write of its journal.
const writers = 8

// PutJobs stores jobs, by their tokens; the folder is synced once for all. After an error some may be there.
func (s *Spool) PutJobs(jobs iter.Seq2[string, Job]) error {
	var (
		wait sync.WaitGroup
		mu   sync.Mutex
		errs error
	)
	places := make(chan struct{}, writers)
	failed := func(err error) bool {
		mu.Lock()
		defer mu.Unlock()
		errs = errors.Join(errs, err)
		return errs != nil
	}
	for token, j := range jobs {
		data, err := json.Marshal(j)
		if err != nil {
			err = fmt.Errorf("spool job: %w", err)
		}
		places <- struct{}{}
		if failed(err) {
			break
		}
		wait.Go(func() {
			defer func() { <-places }()
			failed(s.place(token, jobSuffix, data))
		})
	}
	wait.Wait()
	if errs != nil {
		return errs
	}
	return s.sync()
}

// Job reads a job.
func (s *Spool) Job(token string) (Job, error) {
	data, err := s.get(token, jobSuffix, maxJobBytes)
	if err != nil {
		return Job{}, err
	}
	var j Job
	if err := json.Unmarshal(data, &j); err != nil {
		return Job{}, fmt.Errorf("read spooled job: %w", err)
	}
	return j, nil
}

// PutBundle stores a bundle.
func (s *Spool) PutBundle(token string, bundle []byte) error {
	return s.put(token, bundleSuffix, bundle)
}

// Bundle reads a bundle.
func (s *Spool) Bundle(token string) ([]byte, error) {
	return s.get(token, bundleSuffix, MaxBundleBytes)
}

// OpenBundle opens a bundle for whoever reads what is in it.
func (s *Spool) OpenBundle(token string) (*os.File, error) {
	path, err := s.path(token, bundleSuffix)
	if err != nil {
		return nil, err
	}
	return openRegular(path, MaxBundleBytes)
}

// RemoveBundle forgets a job's bundle and keeps its script.
func (s *Spool) RemoveBundle(token string) error { return s.remove(token, bundleSuffix) }

// Remove forgets everything about a job, but its bundle where KeepBundles says so.
func (s *Spool) Remove(token string) error {
	return errors.Join(s.remove(token, jobSuffix), s.endBundle(token))
}

func (s *Spool) remove(token, suffix string) error {
	path, err := s.path(token, suffix)
	if err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("clean spool: %w", err)
	}
	return nil
}

// Keep removes what belongs to none of the tokens: jobs that ended while nobody looked.
func (s *Spool) Keep(tokens map[string]bool) error {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return fmt.Errorf("clean spool: %w", err)
	}
	for _, e := range entries {
		token, found := strings.CutSuffix(e.Name(), jobSuffix)
		if !found {
			token, found = strings.CutSuffix(e.Name(), bundleSuffix)
		}
		if !found || tokens[token] {
			continue
		}
		if err := os.Remove(filepath.Join(s.dir, e.Name())); err != nil {
			return fmt.Errorf("clean spool: %w", err)
		}
	}
	return nil
}

func (s *Spool) path(token, suffix string) (string, error) {
	if !plainToken.MatchString(token) {
		return "", fmt.Errorf("spool: %.80q is no token", token)
	}
	return filepath.Join(s.dir, token+suffix), nil
}

func (s *Spool) get(token, suffix string, limit int64) ([]byte, error) {
	path, err := s.path(token, suffix)
	if err != nil {
		return nil, err
	}
	return readWhole(path, limit)
}

// openRegular opens a file that is no longer than the limit.
func openRegular(path string, limit int64) (*os.File, error) {
	// O_NONBLOCK: a pipe in this place must not stop the daemon.
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("read spool: %w", err)
	}
	info, err := file.Stat()
	switch {
	case err != nil || !info.Mode().IsRegular():
		err = errors.Join(fmt.Errorf("read spool: %s is no regular file", path), err)
	case info.Size() > limit:
		err = fmt.Errorf("read spool: %s is larger than %d bytes", path, limit)
	default:
		return file, nil
	}
	return nil, errors.Join(err, file.Close())
}

func readWhole(path string, limit int64) ([]byte, error) {
	file, err := openRegular(path, limit)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, limit+1))
	if err != nil {
		return nil, fmt.Errorf("read spool: %w", err)
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("read spool: %s is larger than %d bytes", path, limit)
	}
	return data, nil
}

// put writes the whole file or nothing, and returns only when it would survive a power cut.
func (s *Spool) put(token, suffix string, data []byte) error {
	if err := s.place(token, suffix, data); err != nil {
		return err
	}
	return s.sync()
}

// place is put, but for the name of the file, which survives a power cut after sync only.
func (s *Spool) place(token, suffix string, data []byte) (err error) {
	path, err := s.path(token, suffix)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("write spool: %w", err)
		}
	}()
	part, err := os.CreateTemp(s.dir, token+"-*"+partSuffix)
	if err != nil {
		return err
	}
	defer os.Remove(part.Name())
	if _, err := part.Write(data); err != nil {
		return errors.Join(err, part.Close())
	}
	if err := part.Sync(); err != nil {
		return errors.Join(err, part.Close())
	}
	if err := part.Close(); err != nil {
		return err
	}
	return os.Rename(part.Name(), path)
}

// writableBytes is what has to find room in a spool that can be written: the longest script, roughly.
const writableBytes = 1 << 20

// Writable says why no job can be stored now, nil when one can.
func (s *Spool) Writable() error {
	const name = "room"
	if err := s.put(name, jobSuffix, make([]byte, writableBytes)); err != nil {
		return err
	}
	return s.remove(name, jobSuffix)
}

// sync makes the names in the folder durable.
func (s *Spool) sync() error {
	dir, err := os.Open(s.dir)
	if err != nil {
		return fmt.Errorf("write spool: %w", err)
	}
	if err := errors.Join(dir.Sync(), dir.Close()); err != nil {
		return fmt.Errorf("write spool: %w", err)
	}
	return nil
}
