package e2e

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/daemon/epilog"
	"github.com/gresize/gresize/daemon/jobs"
	"github.com/gresize/gresize/e2e/site"
	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/slurm/minicluster"
	"github.com/gresize/gresize/slurm/wire"
)

// probeKey is the key of a running probe, which root of its node can read.
func (s *fakeSite) probeKey(name string) (key string) {
	s.t.Helper()
	waitUntil(s.t, time.Minute, "the probe "+name+" to run", func() bool {
		all, _ := filepath.Glob("/proc/[0-9]*/environ")
		for _, path := range all {
			text, err := os.ReadFile(path)
			if err != nil || !bytes.Contains(text, []byte("/v1/probes/"+name+"\x00")) {
				continue
			}
			for variable := range strings.SplitSeq(string(text), "\x00") {
				if value, found := strings.CutPrefix(variable, "GRESIZE_PROBE_KEY="); found {
					key = value
				}
			}
		}
		return key != ""
	})
	return key
}

// probeOf waits until the probe of a job runs.
func (s *fakeSite) probeOf(id string) (name, key string) {
	s.t.Helper()
	s.waitState(id, jobs.StateProbing)
	waitUntil(s.t, time.Minute, "the probe of job "+id, func() bool {
		story, err := s.story(id)
		if err != nil || len(story.Probes) == 0 {
			return false
		}
		name = story.Probes[len(story.Probes)-1].Name
		return true
	})
	return name, s.probeKey(name)
}

// TestHostileNode is root of a compute node that lies: about the probe that runs there, in whose name it reports; and about jobs, in Epilogs that munge proves to be root's. What it says of its own
// probe is believed, as it has to be; nothing that it says moves another job, no job that slurmctld knows to wait, to run or to have ended well has died, and the daemon stays well.
func TestHostileNode(t *testing.T) {
	if withMallory(t) {
		onAPair(t, hostileNode)
	}
}

func hostileNode(t *testing.T, cluster minicluster.Options) {
	s := newFakeSiteOf(t, site.Options{Cluster: cluster, Mode: "enforce", Hold: 4 * time.Minute})
	before, _ := ofProcess(t, s.DaemonPID())
	waits := says(t, 7, estimator.Exact)
	waits.Until = "go"
	s.answer(waits)
	id, other := s.submit(tooLarge...), s.submitAs(mallory, append([]string{"--comment=another"}, tooLarge...)...)
	name, key := s.probeOf(id)
	otherName, otherKey := s.probeOf(other)
	address := s.probesAddress()
	bundle := waits.Bundles["a100-80"]
	packed := func(text string, times int) string {
		var out bytes.Buffer
		z := gzip.NewWriter(&out)
		for range times {
			_, _ = z.Write([]byte(text))
		}
		_ = z.Close()
		return out.String()
	}
	head := func(method, page, probe, key string, more string) string {
		return fmt.Sprintf("%s /v1/probes/%s%s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n%s\r\n", method, probe, page, key, more)
	}
	whole := func(page, probe, key, body string) string {
		return head("POST", page, probe, key, fmt.Sprintf("Content-Length: %d\r\nConnection: close\r\n", len(body))) + body
	}
	var wait sync.WaitGroup
	for _, a := range []struct{ name, request string }{
		{"a bundle under another probe's name", whole("/result", otherName, key, string(bundle))},
		{"a bundle with another probe's key", whole("/result", name, otherKey, string(bundle))},
		{"a bundle under a name of its own", whole("/result", "gresize-probe-aaaaaaaaaa", key, string(bundle))},
		{"half a bundle", head("POST", "/result", name, key, fmt.Sprintf("Content-Length: %d\r\n", len(bundle))) + string(bundle[:len(bundle)/2])},
		{"more than a bundle has", head("POST", "/result", name, key, "Content-Length: 1099511627776\r\n")},
		{"a length below nothing", head("POST", "/result", name, key, "Content-Length: -1\r\n")},
		{"chunks without end", head("POST", "/result", name, key, "Transfer-Encoding: chunked\r\n") + strings.Repeat("100000\r\n"+strings.Repeat("a", 1<<20)+"\r\n", 70)},
		{"a chunk of a length that overflows", head("POST", "/result", name, key, "Transfer-Encoding: chunked\r\n") + "7fffffffffffffff\r\n" + strings.Repeat("a", 1<<20)},
		{"the key twice", fmt.Sprintf("GET /v1/probes/%s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nAuthorization: Bearer %s\r\n\r\n", name, otherKey, key)},
		{"the key in other letters", head("GET", "", name, strings.ToUpper(key), "")},
		{"the key and more", head("GET", "", name, key+" "+key, "")},
		{"no key", head("GET", "", name, "", "")},
		{"a reason that is no code", whole("/failure", name, key, `{"code":"\u001b[2J","detail":"x"}`)},
		{"a reason of a megabyte", whole("/failure", name, key, `{"code":"script_failed","detail":"`+strings.Repeat("x", 1<<20)+`"}`)},
		{"a reason twice", whole("/failure", name, key, `{"code":"script_failed","code":"probe_lost","detail":"x"}`)},
		{"a reason in other letters", whole("/failure", name, key, `{"Code":"script_failed","Detail":"x"}`)},
		{"a reason that is a list", whole("/failure", name, key, `[{"code":"script_failed","detail":"x"}]`)},
		{"nothing has changed since no job", whole("/unchanged", name, key, `{"job":0}`)},
		{"nothing has changed since this very job", whole("/unchanged", name, key, `{"job":1}`)},
		{"nothing has changed since another's job", whole("/unchanged", name, key, `{"job":2}`)},
		{"nothing has changed since a job to come", whole("/unchanged", name, key, `{"job":9223372036854775807}`)},
		{"nothing has changed since half a job", whole("/unchanged", name, key, `{"job":1.5}`)},
		{"a list of files that unpacks to 4 GiB", whole("/inputs", name, key, packed(strings.Repeat("\x00", 1<<20), 4096))},
		{"a list of files that is none", whole("/inputs", name, key, packed("/etc/shadow\n", 1000))},
		{"a list of files cut off", whole("/inputs", name, key, packed("x", 1000)[:20])},
		{"another verb", head("DELETE", "", name, key, "")},
		{"another page", whole("/verdict", name, key, "{}")},
		{"a bundle to the Epilog's page", fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", epilog.Path, len(bundle), bundle)},
	} {
		wait.Go(func() {
			begun := time.Now()
			statuses, all := spoken(t, address, a.request, 70*time.Second)
			for _, status := range statuses {
				if status < 400 {
					t.Errorf("%s: %v", a.name, statuses)
				}
			}
			if took := time.Since(begun); took > 65*time.Second || strings.Contains(all, key) {
				t.Errorf("%s: %s\n%.200q", a.name, took, all)
			}
		})
	}
	wait.Wait()
	if health := healthAt(s.MetricsPath()); health != "ok" {
		t.Errorf("after what the node sent in a probe's name: %s", health)
	}
	// Of many who ask with the right key, some are told to come again.
	busy := map[int]int{}
	var mu sync.Mutex
	for range 200 {
		wait.Go(func() {
			statuses, _ := spoken(t, address, head("GET", "", name, key, "Connection: close\r\n"), 20*time.Second)
			mu.Lock()
			defer mu.Unlock()
			if len(statuses) == 1 {
				busy[statuses[0]]++
			}
		})
	}
	wait.Wait()
	for status := range busy {
		if status != http.StatusOK && status != http.StatusServiceUnavailable {
			t.Errorf("200 at once: %v", busy)
		}
	}

	// The report of another card, for its own probe: the job keeps what its owner asked for.
	if statuses, _ := spoken(t, address, whole("/result", otherName, otherKey, string(bundleFor(t, "t4", 1, estimator.Exact))), 20*time.Second); len(statuses) != 1 || statuses[0] != http.StatusNoContent {
		t.Errorf("a report of its own probe: %v", statuses)
	}
	for range 3 {
		if statuses, _ := spoken(t, address, whole("/result", otherName, otherKey, string(bundle)), 20*time.Second); len(statuses) != 1 || statuses[0] < 400 {
			t.Errorf("a second report: %v", statuses)
		}
	}
	story := s.finished(other, time.Minute)
	if story.Job.State != jobs.StateReleased {
		t.Errorf("what was recorded on another card: %s %+v", states(story), story.Decisions)
	}

	// Epilogs about jobs that wait, run, ended well, and are not there. The first job still waits for its probe.
	row := func(id string, change string) string {
		document := fmt.Sprintf(`{"schema":%q,"job_id":%s,"uid":%d,"node":"gpu1","memory_line":"CUDA out of memory"}`, epilog.Schema, id, uidOf(t, minicluster.DefaultUser))
		if change != "" {
			old, next, _ := strings.Cut(change, " => ")
			if !strings.Contains(document, old) {
				t.Fatalf("%s is not in %s", old, document)
			}
			document = strings.Replace(document, old, next, 1)
		}
		return document
	}
	post := func(page, body string) (int, string) {
		for range 50 {
			response, err := http.Post("http://"+address+page, "application/octet-stream", strings.NewReader(body))
			if err != nil {
				return 0, err.Error()
			}
			text, _ := io.ReadAll(response.Body)
			response.Body.Close()
			if response.StatusCode != http.StatusServiceUnavailable {
				return response.StatusCode, string(text)
			}
			time.Sleep(100 * time.Millisecond)
		}
		return http.StatusServiceUnavailable, ""
	}
	say := func(document string) (int, string) { return post(epilog.Path, s.credential("root", document)) }
	refused := func(what string, status int, text string) {
		t.Helper()
		if status < 400 || status >= 500 {
			t.Errorf("%s: %d %.200s", what, status, text)
		}
	}
	status, text := say(row(id, ""))
	refused("a job that waits died", status, text)
	s.tell("go")
	if story = s.finished(id, 2*time.Minute); story.Job.State != jobs.StateVerified {
		t.Fatalf("the job beside the lies: %s %+v", states(story), story.Decisions)
	}
	if job := s.completed(id, time.Minute); job["NodeList"] != "gpu1" {
		t.Errorf("it ran on %s", job["NodeList"])
	}
	var true1 decisionlog.Actual
	waitUntil(t, time.Minute, "the Epilog's own report", func() bool {
		story, err := s.story(id)
		if err != nil || len(story.Actuals) == 0 {
			return false
		}
		true1 = story.Actuals[0]
		return true
	})
	if true1.Outcome != decisionlog.Completed {
		t.Errorf("the true report: %+v", true1)
	}
	for _, a := range []struct {
		name, change string
		refused      bool
	}{
		{"a job that ended well died", "", false},
		{"on a node of another name", `"gpu1" => "gpu2"`, false},
		{"a job that is not there", `"job_id":` + id + ` => "job_id":4000000000`, false},
		{"job 0", `"job_id":` + id + ` => "job_id":0`, true},
		{"a job below nothing", `"job_id":` + id + ` => "job_id":-1`, true},
		{"a job of more than 32 bits", `"job_id":` + id + ` => "job_id":4294967296`, true},
		{"as another user's job", fmt.Sprintf(`"uid":%d => "uid":0`, uidOf(t, minicluster.DefaultUser)), false},
		{"a node of no name", `"gpu1" => ""`, true},
		{"a node that is a path", `"gpu1" => "../../etc"`, true},
		{"a node that steers a terminal", `"gpu1" => "\u001b[2J"`, true},
		{"a line of a megabyte", `CUDA out of memory => ` + strings.Repeat("x", 12<<10), true},
		{"another schema", epilog.Schema + ` => ` + epilog.SchemaTold, true},
		{"a key that the form has not", `"node" => "x":1,"node"`, true},
		{"a key twice", `"node":"gpu1" => "node":"gpu1","node":"gpu2"`, true},
		{"a key in other letters", `"node" => "Node"`, true},
		{"a peak below nothing", `"memory_line":"CUDA out of memory" => "peaks":[{"gpu":"0","peak_bytes":-1,"processes":1}]`, true},
		{"a peak of an exabyte", `"memory_line":"CUDA out of memory" => "peaks":[{"gpu":"0","peak_bytes":1152921504606846976,"processes":1}]`, true},
		{"a peak of half a byte", `"memory_line":"CUDA out of memory" => "peaks":[{"gpu":"0","peak_bytes":0.5,"processes":1}]`, true},
		{"peaks of 65 cards", `"memory_line":"CUDA out of memory" => "peaks":[` + strings.Repeat(`{"gpu":"0","peak_bytes":1,"processes":1},`, 64) + `{"gpu":"0","peak_bytes":1,"processes":1}]`, true},
		{"a card that is a path", `"memory_line":"CUDA out of memory" => "peaks":[{"gpu":"\n","peak_bytes":1,"processes":1}]`, true},
		{"more than its card has", `"node":"gpu1","memory_line":"CUDA out of memory" => "node":"gpu3","peaks":[{"gpu":"0","peak_bytes":900000000000,"processes":1}]`, false},
	} {
		status, text := say(row(id, a.change))
		if a.refused {
			refused(a.name, status, text)
		} else if status != http.StatusOK {
			t.Errorf("%s: %d %.200s", a.name, status, text)
		}
	}
	// Proofs that are no longer any, or somebody else's.
	again := s.credential("root", row(id, ""))
	post(epilog.Path, again)
	for what, credential := range map[string]string{
		"the same credential again":    again,
		"another user's credential":    s.credential(mallory, row(id, "")),
		"the owner's own":              s.credential(minicluster.DefaultUser, row(id, "")),
		"a report without a proof":     row(id, ""),
		"a proof that was cut off":     again[:len(again)/2],
		"a proof of another mechanism": "gresize-proof/1 0 0 00 " + strings.Repeat("A", 400) + " " + strings.Repeat("0", 64),
	} {
		status, text := post(epilog.Path, credential)
		refused(what, status, text)
	}
	old, err := s.Cluster.Run(t.Context(), "root", "munge", "--socket="+s.Cluster.MungeSocket(), "--ttl=1", "--string="+row(id, ""))
	must(t, err)
	time.Sleep(2500 * time.Millisecond)
	status, text = post(epilog.Path, old)
	refused("a credential of an earlier time", status, text)
	// Nodes that are none.
	taken := 0
	for i := range 80 {
		if status, _ := say(row(id, fmt.Sprintf(`"gpu1","memory_line":"CUDA out of memory" => "made-up-%d"`, i))); status == http.StatusOK {
			taken++
		}
	}
	story, err = s.story(id)
	must(t, err)
	if len(story.Actuals) > 70 {
		t.Errorf("one job has %d reports of nodes that are none", len(story.Actuals))
	}
	for _, a := range story.Actuals {
		if a.Outcome == decisionlog.OutOfMemory || a.PeakBytes > 100<<30 {
			t.Errorf("a lie is believed: %+v", a)
		}
	}
	for _, e := range story.Events {
		if strings.Contains(e.Code, "died") || strings.Contains(e.Code, "requeue") {
			t.Errorf("a lie moves the job: %+v", e)
		}
	}
	if job, err := s.Cluster.Run(t.Context(), "root", "squeue", "--noheader", "--states=all", "--jobs="+id, "--format=%T"); err == nil && strings.TrimSpace(job) != "" && strings.TrimSpace(job) != "COMPLETED" {
		t.Errorf("the job that ended well is %s", job)
	}
	// A job that runs did not die, and is not run again when it has ended well.
	s.answer(says(t, 7, estimator.Exact))
	dir, err := s.Cluster.WorkDir(minicluster.DefaultUser)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "long.sh"), []byte("#!/bin/sh\nsrun true && sleep 8\n"), 0o644))
	long, err := s.Cluster.Sbatch(t.Context(), minicluster.DefaultUser, append(append([]string{"--mem=200M", "--time=5"}, tooLarge...), "long.sh")...)
	must(t, err)
	waitUntil(t, time.Minute, "the long job to run", func() bool {
		out, err := s.Cluster.Run(t.Context(), "root", "squeue", "--noheader", "--jobs="+long, "--format=%T")
		return err == nil && strings.TrimSpace(out) == "RUNNING"
	})
	status, text = say(row(long, ""))
	refused("a job that runs died", status, text)
	s.completed(long, time.Minute)
	time.Sleep(6 * time.Second) // longer than the loop over jobs that run again waits
	story, err = s.story(long)
	must(t, err)
	for _, a := range story.Actuals {
		if a.Outcome != decisionlog.Completed {
			t.Errorf("of the job that ran on: %+v", a)
		}
	}
	if out, err := s.Cluster.Run(t.Context(), "root", "squeue", "--noheader", "--states=all", "--jobs="+long, "--format=%T"); err == nil && strings.TrimSpace(out) != "COMPLETED" {
		t.Errorf("the job that ran on is %s", out)
	}
	after, descriptors := ofProcess(t, s.DaemonPID())
	t.Logf("80 made-up nodes: %d taken; asked 200 times at once: %v; gresized has %.1f MiB, %.1f before, and %d descriptors", taken, busy, after, before, descriptors)
	if health := healthAt(s.MetricsPath()); health != "ok" || after > 200 || descriptors > 100 {
		t.Errorf("%s, %.1f MiB, %d descriptors", health, after, descriptors)
	}
}

func uidOf(t *testing.T, name string) int {
	t.Helper()
	who, err := user.Lookup(name)
	must(t, err)
	uid, err := strconv.Atoi(who.Uid)
	must(t, err)
	return uid
}

// TestHostilePeer speaks to the daemon's socket as root does who is not slurmctld: halves, lengths that lie, tags in disorder, what is large and what is slow, several thousand frames with a few bytes
// changed. After each, a question in form is answered at once; beside all of them a job is decided; and the daemon is as it was.
func TestHostilePeer(t *testing.T) {
	onAPair(t, hostilePeer)
}

func hostilePeer(t *testing.T, cluster minicluster.Options) {
	s := newFakeSiteOf(t, site.Options{Cluster: cluster, Mode: "enforce", Hold: 2 * time.Minute})
	s.answer(says(t, 7, estimator.Exact))
	socket := filepath.Join(filepath.Dir(s.MetricsPath()), "submit.sock")
	before, _ := ofProcess(t, s.DaemonPID())
	var sound bytes.Buffer
	must(t, wire.WriteRequest(&sound, &wire.Request{SlurmVersion: 0x160508, UserID: 1001, GroupID: 100, TresPerNode: "gres:gpu:1", Script: "#!/bin/sh\n", ScriptTotal: 10, Name: "x", WorkDir: "/tmp", Environment: []string{"A=b"}, EnvironmentTotal: 1}))
	frame := sound.Bytes()
	framed := func(kind uint16, length uint32, body string) string {
		b := append([]byte("GRSZ"), 0, 1)
		b = binary.BigEndian.AppendUint16(b, kind)
		return string(append(binary.BigEndian.AppendUint32(b, length), body...))
	}
	field := func(tag uint16, value string) string {
		b := binary.BigEndian.AppendUint16(nil, tag)
		return string(append(binary.BigEndian.AppendUint32(b, uint32(len(value))), value...))
	}
	body := func(b string) string { return framed(1, uint32(len(b)), b) }
	fields := string(frame[12:])
	asks := func() (time.Duration, error) {
		begun := time.Now()
		connection, err := net.DialTimeout("unix", socket, time.Second)
		if err != nil {
			return 0, err
		}
		defer connection.Close()
		must(t, connection.SetDeadline(time.Now().Add(5*time.Second)))
		// A job without a GPU: it passes, and leaves no row.
		if err := wire.WriteRequest(connection, &wire.Request{SlurmVersion: 0x160508, UserID: 1001, Script: "#!/bin/sh\n", ScriptTotal: 10}); err != nil {
			return 0, err
		}
		_, err = wire.ReadReply(connection)
		return time.Since(begun), err
	}
	open := []net.Conn{}
	defer func() {
		for _, c := range open {
			c.Close()
		}
	}()
	var longest time.Duration
	for _, a := range []struct {
		name, sent string
		// slowly: a byte at a time, and never the end; deaf: no answer is read; times: that often.
		slowly, deaf bool
		times        int
	}{
		{"nothing", "", false, true, 50},
		{"a letter", "G", false, true, 50},
		{"half a head", string(frame[:6]), false, true, 50},
		{"half a body", string(frame[:len(frame)/2]), false, true, 50},
		{"a byte at a time", string(frame), true, false, 20},
		{"another program", "GET / HTTP/1.1\r\nHost: x\r\n\r\n", false, false, 1},
		{"TLS", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", false, false, 1},
		{"zeros", strings.Repeat("\x00", 1<<20), false, false, 5},
		{"a length of 4 GiB", framed(1, 0xffffffff, ""), false, false, 20},
		{"a length of 2 MiB and a byte", framed(1, 2<<20+1, strings.Repeat("a", 2<<20+1)), false, false, 5},
		{"a length of 2 MiB and nothing", framed(1, 2<<20, ""), false, true, 100},
		{"no body", body(""), false, false, 1},
		{"version 0", "GRSZ\x00\x00\x00\x01\x00\x00\x00\x00", false, false, 1},
		{"version 65535", "GRSZ\xff\xff\x00\x01\x00\x00\x00\x00", false, false, 1},
		{"a reply", framed(2, uint32(len(fields)), fields), false, false, 1},
		{"a kind that is none", framed(65535, uint32(len(fields)), fields), false, false, 1},
		{"tags that fall", body(field(8, "x") + field(2, "12345678")), false, false, 1},
		{"a tag twice", body(fields + fields), false, false, 1},
		{"a field longer than its body", body("\x00\x01\x7f\xff\xff\xff1234"), false, false, 1},
		{"a number of 3 bytes", body(field(1, "abc")), false, false, 1},
		{"a list that ends in the middle", body(fields + field(0x7000, "\x00\x00\xff\xffab")), false, false, 1},
		{"tags without end", body(strings.Repeat("\x80\x01\x00\x00\x00\x00", 300_000)), false, false, 1},
		{"two questions in one", string(frame) + string(frame), false, false, 5},
		{"a thousand questions and no ear", strings.Repeat(string(frame), 1000), false, true, 5},
	} {
		for range a.times {
			connection, err := net.DialTimeout("unix", socket, 2*time.Second)
			if err != nil {
				t.Errorf("%s: %v", a.name, err)
				continue
			}
			open = append(open, connection)
			_ = connection.SetDeadline(time.Now().Add(10 * time.Second))
			switch {
			case a.slowly:
				go func() {
					for i := range a.sent {
						if _, err := io.WriteString(connection, a.sent[i:i+1]); err != nil {
							return
						}
						time.Sleep(20 * time.Millisecond)
					}
				}()
			case a.deaf:
				go func() { _, _ = io.WriteString(connection, a.sent) }()
			default:
				go func() { _, _ = io.WriteString(connection, a.sent) }()
				answer, _ := io.ReadAll(io.LimitReader(connection, 1<<20))
				if len(answer) > 64<<10 {
					t.Errorf("%s: an answer of %d bytes", a.name, len(answer))
				}
				connection.Close()
			}
		}
		// Of too many at once some are closed without an answer, which passes a job; nobody waits for them longer than for one connection.
		took, err := asks()
		for deadline := time.Now().Add(4 * time.Second); err != nil && time.Now().Before(deadline); took, err = asks() {
			time.Sleep(50 * time.Millisecond)
		}
		if longest = max(longest, took); err != nil {
			t.Errorf("after %s: %v", a.name, err)
		}
	}
	// Frames of which a few bytes are others, by a number that can be repeated.
	random := rand.New(rand.NewPCG(18, 6)) //nolint:gosec // a choice that can be repeated
	for range 3000 {
		changed := bytes.Clone(frame)
		for range 1 + random.IntN(4) {
			changed[random.IntN(len(changed))] = byte(random.IntN(256))
		}
		connection, err := net.DialTimeout("unix", socket, 2*time.Second)
		if err != nil {
			continue
		}
		_ = connection.SetDeadline(time.Now().Add(20 * time.Millisecond))
		_, _ = connection.Write(changed)
		_, _ = io.ReadAll(io.LimitReader(connection, 1<<16))
		connection.Close()
	}
	took, err := asks()
	if err != nil {
		t.Errorf("after 3,000 changed frames: %v", err)
	}
	id := s.submit(tooLarge...)
	story := s.finished(id, time.Minute)
	if job := s.completed(id, time.Minute); story.Job.State != jobs.StateVerified || job["NodeList"] != "gpu1" {
		t.Errorf("a job after all of it: %s on %s", states(story), job["NodeList"])
	}
	// What was asked for jobs that never came keeps no place.
	time.Sleep(11 * time.Second)
	after, descriptors := ofProcess(t, s.DaemonPID())
	t.Logf("answered within %s beside each, %s after 3,000 changed frames; gresized has %.1f MiB, %.1f before, and %d descriptors", longest.Round(time.Millisecond), took.Round(time.Millisecond), after, before, descriptors)
	entries, err := os.ReadDir(filepath.Join(filepath.Dir(s.LogPath()), "spool"))
	must(t, err)
	if health := healthAt(s.MetricsPath()); health != "ok" || after > before+64 || descriptors > 100 || len(entries) > 40 {
		t.Errorf("%s, %.1f MiB, %d descriptors, %d entries in the spool", health, after, descriptors, len(entries))
	}
}
