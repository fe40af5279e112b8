package e2e

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gresize/gresize/e2e/check"
)

// history writes what happens, one line each, in the order in which it happens.
type history struct {
	mu  sync.Mutex
	out io.Writer
	err error
}

func (h *history) note(l check.Line) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if l.At == 0 {
		l.At = time.Now().UnixMilli()
	}
	data, err := json.Marshal(l)
	if err == nil {
		_, err = h.out.Write(append(data, '\n'))
	}
	if err != nil && h.err == nil {
		h.err = err
	}
}

// playedJob is one job of a played slurmctld.
type playedJob struct {
	id, uid         uint32
	name, token     string
	features, state string
	eligible, began time.Time
	nodes           string
	runFor          time.Duration
	isProbe         bool
}

// playedCluster plays slurmctld: fakeslurm asks it, and it starts jobs when their begin time has come.
type playedCluster struct {
	h    *history
	mu   sync.Mutex
	jobs map[uint32]*playedJob
	next uint32
	// forgotten is how many jobs with a token are no longer in the list.
	forgotten int
	// commands is what scontrol does now: "", "refuse", "slow", "hang", "lost" (it is done, and the answer is lost). probes: "", "refuse", "die", "unsure".
	commands, probes string
	// slow is how much longer a probe takes.
	slow   time.Duration
	bundle map[string][]byte
	random *rand.Rand
	stop   chan struct{}
	wait   sync.WaitGroup
	// clock is the clock of slurmctld.
	clock func() time.Time
}

const (
	runsFor = 700 * time.Millisecond
	// keepsFor is how long a job that has ended stays in the list, as MinJobAge says.
	keepsFor = 20 * time.Second
	slowness = 800 * time.Millisecond
	// hangsFor is above the configured slurm.timeout.
	hangsFor = 4 * time.Second
)

// newPlayedCluster listens for fakeslurm in dir and for gresized, in place of gresize-launch, at launchSocket.
func newPlayedCluster(t *testing.T, h *history, dir, launchSocket string, seed uint64, bundle map[string][]byte) *playedCluster {
	t.Helper()
	c := &playedCluster{h: h, jobs: map[uint32]*playedJob{}, next: 1000, bundle: bundle, random: rand.New(rand.NewPCG(seed, 2)), stop: make(chan struct{}), clock: time.Now}
	for path, answer := range map[string]func(net.Conn){filepath.Join(dir, "cluster"): c.command, launchSocket: c.launch} {
		listener, err := net.Listen("unix", path)
		must(t, err)
		c.wait.Go(func() {
			for {
				connection, err := listener.Accept()
				if err != nil {
					return
				}
				c.wait.Go(func() { defer connection.Close(); answer(connection) })
			}
		})
		t.Cleanup(func() { listener.Close() })
	}
	c.wait.Go(c.tick)
	return c
}

func (c *playedCluster) set(what *string, value string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*what = value
}

// add puts a job into the queue and returns its id.
func (c *playedCluster) add(j *playedJob, submitted *check.Line) uint32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next++
	j.id, j.state = c.next, "PENDING"
	c.jobs[j.id] = j
	if submitted != nil {
		submitted.Job = j.id
		c.h.note(*submitted)
	}
	return j.id
}

// tick starts and ends jobs.
func (c *playedCluster) tick() {
	for {
		select {
		case <-c.stop:
			return
		case <-time.After(50 * time.Millisecond):
		}
		c.mu.Lock()
		now := c.clock()
		for id, j := range c.jobs {
			switch {
			case j.state == "PENDING" && !now.Before(j.eligible):
				j.state, j.began, j.nodes = "RUNNING", now, "n1"
				if !j.isProbe {
					c.h.note(check.Line{Kind: "start", Job: j.id, Asked: j.features})
				}
			case j.state == "RUNNING" && now.Sub(j.began) > j.runFor:
				j.state = "COMPLETED"
			case j.state != "PENDING" && j.state != "RUNNING" && now.Sub(j.began) > keepsFor:
				if j.token != "" {
					c.forgotten++
				}
				delete(c.jobs, id)
			}
		}
		c.mu.Unlock()
	}
}

// owner is an act of a job's owner.
func (c *playedCluster) owner(id uint32, act string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	j := c.jobs[id]
	if j == nil || j.state != "PENDING" {
		return
	}
	l := check.Line{Kind: "owner", Job: id, Name: act}
	switch act {
	case "lift":
		j.eligible = c.clock()
	case "cancel":
		j.state, j.began = "CANCELLED", c.clock()
	case "change":
		j.features = "gpu40g"
		l.Asked = j.features
	}
	c.h.note(l)
}

// startedOrGone says whether a job has started, or is forgotten already.
func (c *playedCluster) startedOrGone(id uint32) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	j := c.jobs[id]
	return j == nil || j.state != "PENDING"
}

// settled says whether every job has started or was cancelled.
func (c *playedCluster) settled() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, j := range c.jobs {
		if !j.isProbe && j.state == "PENDING" {
			return false
		}
	}
	return true
}

type commandAnswer struct {
	Code        int
	Out, Stderr string
}

func (c *playedCluster) command(connection net.Conn) {
	var argv []string
	if json.NewDecoder(connection).Decode(&argv) != nil {
		return
	}
	c.mu.Lock()
	mood := c.commands
	c.mu.Unlock()
	answer := commandAnswer{Code: 1, Stderr: "Unable to contact slurm controller (connect failure)\n"}
	switch mood {
	case "refuse":
	case "hang":
		time.Sleep(hangsFor)
	case "lost":
		if c.carryOut(argv); slices.Contains(argv, "update") {
			time.Sleep(hangsFor)
			break
		}
		answer = c.carryOut(argv)
	case "slow":
		time.Sleep(slowness)
		answer = c.carryOut(argv)
	default:
		answer = c.carryOut(argv)
	}
	// Whoever asked may be dead.
	_ = json.NewEncoder(connection).Encode(answer)
}

// carryOut is one command of Slurm, as far as gresized uses it.
func (c *playedCluster) carryOut(argv []string) commandAnswer {
	c.mu.Lock()
	defer c.mu.Unlock()
	command := strings.Join(argv, " ")
	switch {
	case strings.HasSuffix(command, " --version"):
		return commandAnswer{Out: "slurm-wlm 22.05.8\n"}
	case command == "scontrol ping":
		return commandAnswer{}
	case argv[0] == "squeue" && !strings.HasPrefix(argv[len(argv)-1], "--jobs="):
		var out strings.Builder
		for _, id := range slices.Sorted(maps.Keys(c.jobs)) {
			out.WriteString(c.jobs[id].record(argv, c.clock()))
		}
		return commandAnswer{Out: out.String()}
	case argv[0] == "scancel" && len(argv) == 2:
		id, _ := strconv.ParseUint(argv[1], 10, 32)
		j := c.jobs[uint32(id)]
		if j == nil || !j.isProbe {
			c.h.note(check.Line{Kind: "update", Job: uint32(id), Name: "cancelled by gresize"})
			return commandAnswer{Code: 1}
		}
		j.state = "CANCELLED"
		return commandAnswer{}
	case argv[0] == "squeue":
		id, _ := strconv.ParseUint(strings.TrimPrefix(argv[len(argv)-1], "--jobs="), 10, 32)
		if j := c.jobs[uint32(id)]; j != nil {
			c.h.note(check.Line{Kind: "look", Job: j.id})
			return commandAnswer{Out: j.record(argv, c.clock())}
		}
		return commandAnswer{Code: 1, Stderr: "slurm_load_jobs error: Invalid job id specified\n"}
	case len(argv) > 3 && argv[2] == "update":
		return c.update(argv)
	}
	return commandAnswer{Code: 2, Stderr: "fakeslurm does not know: " + command + "\n"}
}

func (c *playedCluster) update(argv []string) commandAnswer {
	uid, _ := strconv.ParseUint(strings.TrimPrefix(argv[1], "--uid="), 10, 32)
	id, _ := strconv.ParseUint(strings.TrimPrefix(argv[3], "JobId="), 10, 32)
	j := c.jobs[uint32(id)]
	if j == nil {
		return commandAnswer{Code: 1, Stderr: "Invalid job id specified\n"}
	}
	if j.state != "PENDING" {
		// slurmctld refuses as well: nothing has happened to the job.
		return commandAnswer{Code: 1, Stderr: "Job is no longer pending execution\n"}
	}
	for _, word := range argv[4:] {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "Features":
			j.features = value
		case "StartTime":
			if j.eligible = c.clock(); value != "now" {
				j.eligible, _ = time.ParseInLocation("2006-01-02T15:04:05", value, time.UTC)
			}
		default:
			return commandAnswer{Code: 1, Stderr: "fakeslurm does not know " + key + "\n"}
		}
	}
	c.h.note(check.Line{Kind: "update", Job: j.id, UID: uint32(uid), Asked: j.features})
	return commandAnswer{}
}

// record is a job as squeue prints it, in the fields that it was asked for.
func (j *playedJob) record(argv []string, now time.Time) string {
	reason, nodes, fields := "None", "n/a", ""
	if j.state == "PENDING" && now.Before(j.eligible) {
		reason = "BeginTime"
	}
	if j.nodes != "" {
		nodes = j.nodes
	}
	values := map[string]string{"JobID": fmt.Sprint(j.id), "JobArrayID": fmt.Sprint(j.id), "Name": j.name, "UserID": fmt.Sprint(j.uid), "QOS": "normal", "State": j.state, "Reason": reason, "RestartCnt": "0", "exit_code": "0", "TimeUsed": "0:00",
		"EligibleTime": j.eligible.UTC().Format("2006-01-02T15:04:05"), "StartTime": "N/A", "Partition": "gpu", "BatchHost": nodes, "Feature": j.features, "admin_comment": j.token, "tres-per-node": "gres:gpu:1"}
	for _, word := range argv {
		if list, ok := strings.CutPrefix(word, "--Format="); ok {
			fields = list
		}
	}
	var line strings.Builder
	for field := range strings.SplitSeq(fields, ",") {
		name, width, _ := strings.Cut(field, ":.")
		n, _ := strconv.Atoi(width)
		value := values[name]
		fmt.Fprintf(&line, "%*s", n, value[:min(n, len(value))])
	}
	return line.String() + "\n"
}

// launch plays gresize-launch and the probe.
func (c *playedCluster) launch(connection net.Conn) {
	var header [4]byte
	if _, err := io.ReadFull(connection, header[:]); err != nil {
		return
	}
	var r struct {
		UID            uint32
		Name, Key, URL string
	}
	if json.NewDecoder(io.LimitReader(connection, int64(binary.BigEndian.Uint32(header[:])))).Decode(&r) != nil {
		return
	}
	c.mu.Lock()
	mood, after := c.probes, c.slow+time.Duration(200+c.random.IntN(800))*time.Millisecond
	c.mu.Unlock()
	answer := map[string]any{}
	if mood == "hang" {
		time.Sleep(hangsFor)
		return
	}
	if mood == "refuse" {
		answer["error"] = "sbatch: error: Batch job submission failed: Socket timed out"
	} else {
		c.h.note(check.Line{Kind: "probe", Name: r.Name, UID: r.UID})
		answer["job_id"] = c.add(&playedJob{uid: r.UID, name: r.Name, features: "cpu", eligible: time.Now(), runFor: after + 2*time.Second, isProbe: true}, nil)
		c.wait.Go(func() { c.probe(r.URL, r.Key, mood, after) })
	}
	if mood == "unsure" {
		return // the probe runs, and nobody says so
	}
	body, err := json.Marshal(answer)
	if err != nil {
		return
	}
	_, _ = connection.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...))
}

// probe asks for its job and reports, trying again as the real one does.
func (c *playedCluster) probe(url, key, mood string, after time.Duration) {
	var job struct {
		GPU string `json:"gpu"`
	}
	for range 40 {
		if err := c.http(http.MethodGet, url, key, nil, &job); err == nil {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	time.Sleep(after)
	body := c.bundle[job.GPU]
	switch mood {
	case "die":
		return
	case "garbage":
		body = bytes.Repeat([]byte{0xff}, 100)
	}
	for range 20 {
		if err := c.http(http.MethodPost, url+"/result", key, body, nil); err == nil {
			// A second report of the same probe must change nothing.
			_ = c.http(http.MethodPost, url+"/result", key, body, nil)
			return
		}
		select {
		case <-c.stop:
			return
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (c *playedCluster) http(method, url, key string, body []byte, into any) error {
	request, err := http.NewRequest(method, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+key)
	client := http.Client{Timeout: 3 * time.Second}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode >= 300 {
		return fmt.Errorf("%s", response.Status)
	}
	if into == nil {
		return nil
	}
	return json.NewDecoder(response.Body).Decode(into)
}

// buildChaos puts the programs of a run in dir: copies, since a run may replace them.
func buildChaos(dir string) error {
	build, err := buildFake()
	if err != nil {
		return err
	}
	for program, from := range map[string]string{"gresized": "gresized", "scontrol": "fakeslurm"} {
		data, err := os.ReadFile(filepath.Join(build, "bin", from))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, program), data, 0o755); err != nil { // #nosec G306 -- a program
			return err
		}
	}
	return errors.Join(os.Symlink("scontrol", filepath.Join(dir, "scancel")), os.Symlink("scontrol", filepath.Join(dir, "squeue")))
}
