// Package launch owns the protocol between gresized, which has no rights, and
// gresize-launch, which has one verb: submit a probe as the owner of a job. It
// holds both ends and trusts neither with more than that verb.
package launch

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode"

	"github.com/gresize/gresize/internal/strictjson"
)

// Limits of the protocol.
const (
	// maxRequestBytes is above the environment that the plugin sends, as JSON with base64.
	maxRequestBytes = 2 << 20
	maxReplyBytes   = 16 << 10
	maxVariables    = 16 << 10
	maxPathBytes    = 4096
	maxMinutes      = 24 * 60
	maxCPUs         = 1024
	maxMemoryMiB    = 16 << 20
)

// Request asks for one probe.
type Request struct {
	UID uint32 `json:"uid"`
	GID uint32 `json:"gid"`
	// Name becomes the name of the probe's Slurm job.
	Name string `json:"name"`
	// Key opens the daemon's HTTP side for this probe alone.
	Key string `json:"key"`
	URL string `json:"url"`
	// Environment is the job's own, NAME=value each.
	Environment      [][]byte `json:"environment"`
	WorkDir          string   `json:"work_dir"`
	Partition        string   `json:"partition,omitempty"`
	Account          string   `json:"account,omitempty"`
	QOS              string   `json:"qos,omitempty"`
	TimeLimitMinutes int      `json:"time_limit_minutes"`
	CPUs             int      `json:"cpus"`
	MemoryMiB        int      `json:"memory_mib"`
}

// Reply is the answer.
type Reply struct {
	JobID uint32 `json:"job_id,omitempty"`
	// Error is set when no job was submitted.
	Error string `json:"error,omitempty"`
	// Unsure says that a job may have been submitted all the same, as after a time-out.
	Unsure bool `json:"unsure,omitempty"`
}

// NamePrefix begins the name of every probe's Slurm job.
const NamePrefix = "gresize-probe-"

var (
	probeName = regexp.MustCompile(`^` + NamePrefix + `[a-z0-9]{8,64}$`)
	probeKey  = regexp.MustCompile(`^[a-z0-9]{32,128}$`)
	probeURL  = regexp.MustCompile(`^https?://[A-Za-z0-9_.:/\[\]-]{1,512}$`)
	plainWord = regexp.MustCompile(`^[A-Za-z0-9_.+][A-Za-z0-9_.+-]{0,127}$`)
)

// Validate checks a request as one checks a stranger's.
func (r *Request) Validate() error {
	switch {
	case !probeName.MatchString(r.Name):
		return fmt.Errorf("name: %.80q is not the name of a probe", r.Name)
	case !probeKey.MatchString(r.Key):
		return errors.New("key: not a key")
	case !probeURL.MatchString(r.URL):
		return fmt.Errorf("url: %.80q is not used", r.URL)
	case len(r.WorkDir) > maxPathBytes || !strings.HasPrefix(r.WorkDir, "/") || strings.ContainsFunc(r.WorkDir, unicode.IsControl):
		return fmt.Errorf("work_dir: %.80q is no absolute path without control characters", r.WorkDir)
	case r.TimeLimitMinutes < 1 || r.TimeLimitMinutes > maxMinutes:
		return fmt.Errorf("time_limit_minutes: %d", r.TimeLimitMinutes)
	case r.CPUs < 1 || r.CPUs > maxCPUs:
		return fmt.Errorf("cpus: %d", r.CPUs)
	case r.MemoryMiB < 1 || r.MemoryMiB > maxMemoryMiB:
		return fmt.Errorf("memory_mib: %d", r.MemoryMiB)
	case len(r.Environment) > maxVariables:
		return fmt.Errorf("environment: %d variables", len(r.Environment))
	}
	for _, w := range []struct{ field, value string }{{"partition", r.Partition}, {"account", r.Account}, {"qos", r.QOS}} {
		if w.value != "" && !plainWord.MatchString(w.value) {
			return fmt.Errorf("%s: %.80q is no plain name", w.field, w.value)
		}
	}
	for i, v := range r.Environment {
		if strings.IndexByte(string(v), '=') < 1 || strings.IndexByte(string(v), 0) >= 0 {
			return fmt.Errorf("environment[%d]: not NAME=value", i)
		}
	}
	return nil
}

func write(w io.Writer, message any, limit int) error {
	data, err := json.Marshal(message)
	if err != nil {
		return err
	}
	if len(data) > limit {
		return fmt.Errorf("message of %d bytes, at most %d", len(data), limit)
	}
	_, err = w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(data))), data...))
	return err
}

func read(r io.Reader, message any, limit int) error {
	var header [4]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return err
	}
	length := binary.BigEndian.Uint32(header[:])
	if int64(length) > int64(limit) {
		return fmt.Errorf("message of %d bytes, at most %d", length, limit)
	}
	// Read as it comes, so that a large length alone costs no memory.
	data, err := io.ReadAll(io.LimitReader(r, int64(length)))
	if err != nil {
		return err
	}
	if len(data) != int(length) {
		return io.ErrUnexpectedEOF
	}
	return strictjson.Unmarshal(data, limit, message)
}
