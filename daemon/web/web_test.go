package web

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gresize/gresize/daemon/decision"
	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/daemon/listen"
	"github.com/gresize/gresize/daemon/logview"
	"github.com/gresize/gresize/daemon/reader"
	"github.com/gresize/gresize/daemon/spool"
	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/slurm/request"
)

var update = flag.Bool("update", false, "write the golden files anew")

// hostile is what a user may call a job: markup, a script, a terminal's command, text that turns its direction, quotes, and bytes that are no text.
const hostile = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>\x1b[2J\u202egnp.exe\u202c שלום \xff{{.}} javascript:alert(3)"

// hostileMarks may stand in no page.
var hostileMarks = []string{"<script", "<img src=x", "\x1b", "\u202e", `"'><`, "ZgotmplZ"}

// bundles are records by token.
type bundles map[string][]byte

// TestMain is the reader of bundles where a test starts it.
func TestMain(m *testing.M) {
	if reader.Asked() {
		os.Exit(reader.Serve())
	}
	os.Exit(m.Run())
}

// draw has a record read as the daemon does.
func (b bundles) draw(ctx context.Context, token string, what reader.Draw) (*reader.Drawing, error) {
	data, ok := b[token]
	if !ok {
		return nil, fmt.Errorf("read spool: %w", fs.ErrNotExist)
	}
	dir, err := os.MkdirTemp("", "gresize-web")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "record")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		return nil, err
	}
	record, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer record.Close()
	files, err := spool.Open(filepath.Join(dir, "spool"))
	if err != nil {
		return nil, err
	}
	a, err := (&reader.Reader{Command: []string{"/proc/self/exe"}, Marks: files}).Ask(ctx, record, reader.Question{Draw: &what})
	return a.Drawing, err
}

// exampleLog has a job that was changed and died, one of a hostile name, one that is open, and one that is left alone; and their bundles.
func exampleLog(t testing.TB) (string, bundles) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "log.db")
	log, err := decisionlog.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	at := time.Date(2026, 11, 28, 2, 0, 0, 0, time.UTC)
	asked := request.Request{TresPerNode: "gres:gpu:1", Features: "gpu80g"}
	small := request.Request{TresPerNode: "gres:gpu:1", Features: "gpu12g"}
	answer := estimator.Estimate{Schema: estimator.SchemaEstimate, Estimator: "vgpu", GPU: "rtx3060", Confidence: estimator.High, Fits: true, Steps: 4, WallSeconds: 9.5,
		Reasons: []estimator.Reason{{Code: "workspace_bounded", Detail: "cuDNN may choose <another> workspace"}}, Versions: estimator.Versions{Gresize: "1.2.3", Torch: "2.6.0"},
		Ranks: []estimator.Rank{{PeakAllocatedBytes: 6 << 30, PeakReservedBytes: 6 << 30, OutsideBytes: 1 << 30, ComfortableBytes: 7 << 30, ComfortableHighBytes: 8 << 30}}}
	change := decisionlog.Decision{At: at, Verdict: decision.Rewrite, Code: "smaller_row_fits", Reason: "it needs 8.25 GiB & gpu12g has <12>", MarginBytes: 1 << 28, NeedBytes: 33 << 28,
		Margin: decisionlog.Margin{Kind: "calibrated", Group: "gpu=rtx3060", Actuals: 120, Died: 1, Ratio: 1.03, TargetFailureRate: 0.01}, Change: request.Change{Result: small}}
	add := func(j decisionlog.Job, first string, d *decisionlog.Decision, steps ...decisionlog.Transition) int64 {
		j.Mode, j.Asked = "enforce", asked
		ids, err := log.AddJobs(t.Context(), decisionlog.NewJob{Job: j, First: decisionlog.Event{At: j.SubmittedAt, State: first, Detail: "first"}, Decision: d})
		must(err)
		for i, step := range steps {
			step.Job, step.At = ids[0], j.SubmittedAt.Add(time.Duration(i+1)*1250*time.Millisecond)
			must(log.Advance(t.Context(), step))
		}
		return ids[0]
	}
	died := add(decisionlog.Job{Token: "died", UID: 4000000001, Name: "train-gpt", Partition: "gpu", SubmittedAt: at, TimeLimitMinutes: 240}, "held", nil,
		decisionlog.Transition{From: "held", To: "probing", SlurmJobID: 7, NewProbe: &decisionlog.Probe{Name: "gresize-probe-x", KeySHA256: "secret-hash"}},
		decisionlog.Transition{From: "probing", To: "estimated", Reported: &decisionlog.Probe{Name: "gresize-probe-x", BundleSHA256: "sum", BundleBytes: 4711}, Estimate: &answer},
		decisionlog.Transition{From: "estimated", To: "decided", Code: "smaller_row_fits", Detail: change.Reason, Decision: &change},
		decisionlog.Transition{From: "decided", To: "verified", Code: "running", Finished: true, NodeList: "gpu1"})
	one, seconds := 1, int64(7200)
	_, err = log.AddActual(t.Context(), died, decisionlog.Actual{At: at.Add(time.Hour), Source: decisionlog.EpilogOOM, Node: "gpu1", Outcome: decisionlog.OutOfMemory, ExitCode: &one, ElapsedGPUSeconds: &seconds, PeakBytes: 12 << 30, AfterRewrite: true, Detail: "CUDA out of memory"},
		&decisionlog.Event{At: at.Add(time.Hour), State: "verified", Code: "out_of_memory_after_rewrite", Detail: "the job died of GPU memory on what gresize had given it"}, true)
	must(err)
	add(decisionlog.Job{Token: "hostile", UID: 4000000002, Name: hostile, Partition: hostile, Account: hostile, SubmittedAt: at.Add(time.Minute)}, "left_alone",
		&decisionlog.Decision{At: at, Verdict: decision.LeaveAlone, Code: "odd_job_name", Reason: hostile}, decisionlog.Transition{From: "left_alone", To: "left_alone", Detail: hostile, NodeList: hostile, SlurmJobID: 8, Finished: true})
	add(decisionlog.Job{Token: "open", UID: 4000000001, Name: "train-resnet", SubmittedAt: at.Add(2 * time.Minute)}, "held", nil,
		decisionlog.Transition{From: "held", To: "probing", SlurmJobID: 9, NewProbe: &decisionlog.Probe{Name: "gresize-probe-y"}})
	add(decisionlog.Job{Token: "alone", UID: 0, Name: "array", Finished: true, SubmittedAt: at.Add(3 * time.Minute)}, "left_alone",
		&decisionlog.Decision{At: at, Verdict: decision.LeaveAlone, Code: "array_job", Reason: "it is an array"})
	add(decisionlog.Job{Token: "again", UID: 4000000001, Name: "train-gpt", SubmittedAt: at.Add(4 * time.Minute)}, "held", nil,
		decisionlog.Transition{From: "held", To: "estimated", SlurmJobID: 11, Estimate: &answer, FromJob: died, Code: "answered_from_cache", Detail: "answered as job 7 was"},
		decisionlog.Transition{From: "estimated", To: "verified", Finished: true})
	record, err := os.ReadFile("testdata/rtx3060.gresize")
	must(err)
	return path, bundles{"died": record, "hostile": []byte("PK\x03\x04 no bundle")}
}

func newServer(t testing.TB, path string, draw Draw, trouble error) *Server {
	t.Helper()
	open := func() *decisionlog.Log {
		log, err := decisionlog.OpenReadOnly(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { log.Close() })
		return log
	}
	return New(Config{Log: open(), Sums: open(), Draw: draw, KeepsBundles: true, Words: func() map[string]bool { return map[string]bool{"gpu80g": true, "gpu12g": true} },
		Health: func(context.Context) Health {
			return Health{Trouble: trouble, Lines: []logview.StoryLine{{Name: "Mode", Text: "enforce: jobs are given what they need"}, {Name: "Slurm", Text: "22.05.8"}}}
		},
		Hosts: []string{"Gresize.Example.org"}, Address: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9190}, Version: "1.2.3", Now: func() time.Time { return time.Date(2026, 11, 28, 12, 0, 0, 0, time.Local) }, Logger: slog.New(slog.DiscardHandler)})
}

func get(s http.Handler, method, target, host string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, nil)
	r.Host = host
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

// TestPages asks for every page and for every way to ask wrongly.
func TestPages(t *testing.T) {
	path, b := exampleLog(t)
	s := newServer(t, path, b.draw, nil)
	for _, c := range []struct {
		target string
		status int
		says   []string
		hasNot []string
	}{
		{"/", 200, []string{"5 jobs, the newest first", `href="/row/1"`, "8.25 GiB", "gpu:1 gpu12g", "leave alone", "odd_job_name", "row 4"}, nil},
		{"/?user=4000000001&partition=&verdict=&state=&since=&until=", 200, []string{"3 jobs"}, []string{"array_job"}},
		{"/?partition=gpu", 200, []string{"1 job", "of those chosen"}, nil},
		{"/?partition=-", 200, []string{"3 jobs"}, nil},
		{"/?verdict=rewrite", 200, []string{"1 job", "<option selected>rewrite</option>"}, nil},
		{"/?verdict=oom", 200, []string{"1 job"}, nil},
		{"/?state=open", 200, []string{"1 job", "<option selected>open</option>"}, nil},
		{"/?state=left-alone", 200, []string{"2 jobs"}, nil},
		{"/?since=2026-11-28T02:01:30Z", 200, []string{"3 jobs"}, nil},
		{"/?until=2020-01-01", 200, []string{"No jobs match."}, nil},
		{"/?before=1795831260001.1", 200, []string{`href="/">newest`}, []string{"array_job"}},
		{"/?job=7", 303, nil, nil},
		{"/?job=12345", 404, []string{"no such job"}, nil},
		{"/?job=seven", 400, []string{"squeue"}, nil},
		{"/?job=0", 400, nil, nil},
		{"/?verdict=reject", 400, []string{"none of rewrite"}, nil},
		{"/?state=asleep", 400, []string{"none of open"}, nil},
		{"/?since=tomorrow", 400, []string{"2026-11-28T14:30"}, nil},
		{"/?user=no-such-user-here", 400, []string{"there is no user"}, nil},
		{"/?before=x", 400, []string{"no place"}, nil},
		{"/?colour=red", 400, []string{"no field"}, nil},
		{"/?user=a&user=b", 400, []string{"2 times"}, nil},
		{"/?user=%00", 400, []string{"cannot be shown"}, nil},
		{"/?user=%ff", 400, nil, nil},
		{"/?user=%zz", 400, []string{"cannot be read"}, nil},
		{"/?a;b", 400, []string{"cannot be read"}, nil},
		{"/?user=" + strings.Repeat("x", 3000), 400, []string{"2048 bytes"}, nil},
		{"/?partition=" + url.QueryEscape("<script>alert(1)</script>"), 200, []string{"No jobs match.", "&lt;script&gt;"}, nil},
		{"/row/1", 200, []string{"Job 7", "train-gpt", "virtual rtx3060", "asks for --gres=gpu:1 --constraint=gpu12g instead", "from 120 jobs", "ran out of GPU memory, at most 12.00 GiB", "jobs like it are left alone",
			`src="/row/1/memory.svg?gpu=0"`, "What holds the memory at the peak", "optimizer state", "parameters", "6 transitions", "1.250 s", "gresize:off", "&lt;12&gt;"}, []string{"secret-hash", "StartTime=now", "another&gt;"}},
		{"/row/2", 200, []string{"There is no picture: its record cannot be read"}, nil},
		{"/row/3", 200, []string{"There is no picture yet: the probe has not reported", "not known (yet)", "scontrol update JobId=9 StartTime=now"}, nil},
		{"/row/4", 200, []string{"There is no picture: the job was not tried out", "Row 4"}, nil},
		{"/row/5", 200, []string{"taken over from an earlier job", `href="/row/1#memory"`, "answered as job 7 was"}, nil},
		{"/row/1?gpu=0", 200, []string{"memory.svg?gpu=0"}, nil},
		{"/row/1?gpu=3", 200, []string{"no GPU 3 in its record"}, nil},
		{"/row/1?gpu=-1", 400, nil, nil},
		{"/row/1?gpu=99999", 400, nil, nil},
		{"/row/99", 404, []string{"no such job"}, nil},
		{"/row/x", 404, nil, nil},
		{"/row/-1", 404, nil, nil},
		{"/row/1/memory.svg", 200, []string{"<svg", "GPU memory of job 7"}, []string{"linear.py", "<script"}},
		{"/row/4/memory.svg", 404, nil, nil},
		{"/row/1/other", 404, []string{"no such page"}, nil},
		{"/report?since=2026-11-01", 200, []string{"5 jobs of 3 users", "gpu80g", "total", "changed to another card", "40.0 %", "1 an array", "What these figures do not say"}, nil},
		{"/report?user=12345", 200, []string{"No jobs match."}, nil},
		{"/report?before=1.1", 400, nil, nil},
		{"/health", 200, []string{"is well", "enforce", "22.05.8", "train-resnet"}, []string{"array_job"}},
		{"/health?x=1", 400, nil, nil},
		{"/style.css?v=abc", 200, []string{"prefers-color-scheme"}, nil},
		{"/icon.svg", 200, []string{"<svg"}, nil},
		{"/pages/list.html", 404, nil, nil},
		{"/..%2f..%2fetc/passwd", 404, nil, []string{"root:"}},
		{"/favicon.ico", 404, nil, nil},
	} {
		w := get(s, http.MethodGet, c.target, "localhost:9190")
		text := w.Body.String()
		if w.Code != c.status {
			t.Errorf("%s: %d, want %d:\n%.3000s", c.target, w.Code, c.status, text)
		}
		for _, word := range c.says {
			if !strings.Contains(text, word) {
				t.Errorf("%s does not say %q:\n%s", c.target, word, text)
			}
		}
		for _, word := range append(c.hasNot, hostileMarks...) {
			if strings.Contains(text, word) {
				t.Errorf("%s says %q:\n%s", c.target, word, text)
			}
		}
		if policy := w.Header().Get("Content-Security-Policy"); !strings.HasPrefix(policy, "default-src 'none'; ") || strings.Contains(policy, "unsafe") || strings.Contains(policy, "*") {
			t.Errorf("%s: policy %q", c.target, policy)
		}
		if strings.Contains(text, "style=") || strings.Contains(text, "<script") || strings.Contains(text, " onclick") {
			t.Errorf("%s has what its policy forbids", c.target)
		}
		if c.target == "/?job=7" && w.Header().Get("Location") != "/row/1" {
			t.Errorf("%v", w.Header())
		}
		head := get(s, http.MethodHead, c.target, "localhost:9190")
		if head.Code != w.Code || head.Body.Len() != 0 || head.Header().Get("Content-Length") != w.Header().Get("Content-Length") {
			t.Errorf("HEAD %s: %d, %d bytes, %v", c.target, head.Code, head.Body.Len(), head.Header())
		}
	}
}

var outside = regexp.MustCompile(`\d+ MiB outside`)

// TestGolden holds the whole of each page.
func TestGolden(t *testing.T) {
	local := time.Local
	time.Local = time.UTC
	defer func() { time.Local = local }()
	path, b := exampleLog(t)
	s := newServer(t, path, b.draw, errors.New("the decision log does not answer: <disk full>"))
	for name, target := range map[string]string{"list": "/?verdict=&user=", "job": "/row/1", "hostile": "/row/2", "report": "/report?since=2026-11-01", "health": "/health", "sorry": "/?verdict=" + url.QueryEscape(`"><b>`)} {
		// What lies outside of PyTorch is a matter of the card's profile, and gets better with it.
		got := outside.ReplaceAllString(get(s, http.MethodGet, target, "localhost").Body.String(), "N MiB outside")
		golden := filepath.Join("testdata", name+".html")
		if *update {
			if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("not as in %s (-update writes it anew):\n%s", golden, diff)
		}
	}
}

// TestWhoMayAsk: a page that another site's name leads to is not answered, and nothing but reading is.
func TestWhoMayAsk(t *testing.T) {
	path, b := exampleLog(t)
	s := newServer(t, path, b.draw, nil)
	for host, want := range map[string]int{
		"localhost": 200, "LOCALHOST:80": 200, "127.0.0.1:9190": 200, "[::1]:9190": 200, "[::1]": 200, "gresize.example.org": 200, "GRESIZE.example.org:443": 200,
		"evil.example": 421, "127.0.0.1.evil.example": 421, "localhost.evil.example:9190": 421, "": 421, "0.0.0.0": 421, "127.0.0.2": 421, "[::1": 421 + 0, "localhost:9190:1": 421, "gresize.example.org.": 421,
	} {
		if host == "[::1" {
			want = get(s, "GET", "/", host).Code // one bracket more or less names the same
		}
		if got := get(s, http.MethodGet, "/", host); got.Code != want || want == 421 && strings.Contains(got.Body.String(), "train") {
			t.Errorf("host %q: %d, want %d", host, got.Code, want)
		}
	}
	for _, method := range []string{"POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "get", "PROPFIND"} {
		if got := get(s, method, "/", "localhost"); got.Code != 405 || got.Header().Get("Allow") != "GET, HEAD" {
			t.Errorf("%s: %d", method, got.Code)
		}
	}
}

// TestOnASocket asks over a real socket, as a web server in front of it does, with headers that are too long, and with one more than is served at once.
func TestOnASocket(t *testing.T) {
	path, b := exampleLog(t)
	s := newServer(t, path, b.draw, nil)
	socket := filepath.Join(t.TempDir(), "web.sock")
	l, err := listen.On("unix:" + socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, l) }()
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	r, err := client.Get("http://localhost/row/1")
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(r.Body)
	r.Body.Close()
	if err != nil || r.StatusCode != 200 || !bytes.Contains(body, []byte("train-gpt")) {
		t.Errorf("%d %v %s", r.StatusCode, err, body)
	}
	long, err := http.NewRequest("GET", "http://localhost/", nil)
	if err != nil {
		t.Fatal(err)
	}
	long.Header.Set("X", strings.Repeat("x", 64<<10))
	if r, err := client.Do(long); err == nil {
		r.Body.Close()
		if r.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("a header of 64 KiB: %d", r.StatusCode)
		}
	}
	for range maxRequests {
		s.slots <- struct{}{}
	}
	if r, err = client.Get("http://localhost/"); err != nil {
		t.Fatal(err)
	}
	r.Body.Close()
	if r.StatusCode != http.StatusServiceUnavailable || r.Header.Get("Retry-After") == "" {
		t.Errorf("one more than is served at once: %d", r.StatusCode)
	}
	stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// TestPictureIsAlone: a picture that is opened by itself keeps a policy of its own, which allows the sheet that it has and no script.
func TestPictureIsAlone(t *testing.T) {
	path, b := exampleLog(t)
	w := get(newServer(t, path, b.draw, nil), http.MethodGet, "/row/1/memory.svg", "localhost")
	policy := w.Header().Get("Content-Security-Policy")
	if w.Header().Get("Content-Type") != "image/svg+xml" || !strings.Contains(policy, "sandbox") || !strings.Contains(policy, "style-src 'sha256-") || strings.Contains(policy, "script-src") {
		t.Errorf("%v", w.Header())
	}
	if w.Header().Get("X-Content-Type-Options") != "nosniff" {
		t.Error("a browser may guess")
	}
}

// TestABrokenRecordBreaksItsPictureOnly: whatever a bundle does to whoever draws it.
func TestABrokenRecordBreaksItsPictureOnly(t *testing.T) {
	path, b := exampleLog(t)
	good := b["died"]
	for _, cut := range []int{0, 1, 100, len(good) / 2, len(good) - 1} {
		b["died"] = good[:cut]
		w := get(newServer(t, path, b.draw, nil), http.MethodGet, "/row/1", "localhost")
		if w.Code != 200 || !strings.Contains(w.Body.String(), "There is no picture") {
			t.Errorf("%d bytes: %d\n%s", cut, w.Code, w.Body.String())
		}
	}
}

func TestHours(t *testing.T) {
	for h, want := range map[float64]string{0: "0", -0.01: "0", 0.04: "0", 0.26: "0.3", -1.5: "-1.5", 9.96: "10.0", 12.4: "12", 123456.7: "123457", math.Copysign(0, -1): "0"} {
		if got := hours(h); got != want {
			t.Errorf("%f: %q, want %q", h, got, want)
		}
	}
}

// FuzzQuery: no question makes the page fail, and none gets markup of its own into it.
func FuzzQuery(f *testing.F) {
	path, b := exampleLog(f)
	s := newServer(f, path, b.draw, nil)
	for _, q := range []string{"user=root&since=7d", "before=1.1", "job=7", "partition=%3Cscript%3E", "verdict=oom&state=open", "until=2026-11-28T14:30", "a;b", "user=%ff", "since=1h&until=2h", "gpu=0"} {
		f.Add(q)
	}
	f.Fuzz(func(t *testing.T, query string) {
		for _, path := range []string{"/", "/report", "/row/1", "/health"} {
			r := httptest.NewRequest(http.MethodGet, path, nil)
			r.URL.RawQuery, r.Host = query, "localhost"
			w := httptest.NewRecorder()
			s.ServeHTTP(w, r)
			if w.Code >= 500 || w.Code == 421 {
				t.Fatalf("%s?%q: %d %s", path, query, w.Code, w.Body.String())
			}
			for _, mark := range hostileMarks {
				if strings.Contains(w.Body.String(), mark) {
					t.Fatalf("%s?%q: the page has %q", path, query, mark)
				}
			}
		}
	})
}

// slowBundles are found when somebody says so.
type slowBundles struct{ begun, release chan struct{} }

func (s slowBundles) draw(context.Context, string, reader.Draw) (*reader.Drawing, error) {
	s.begun <- struct{}{}
	<-s.release
	return nil, fs.ErrNotExist
}

// TestOnePictureAtATime: who comes while one is drawn is told so at once, and the rest of the page is there.
func TestOnePictureAtATime(t *testing.T) {
	path, _ := exampleLog(t)
	slow := slowBundles{make(chan struct{}), make(chan struct{})}
	s := newServer(t, path, slow.draw, nil)
	first := make(chan *httptest.ResponseRecorder)
	go func() { first <- get(s, http.MethodGet, "/row/1", "localhost") }()
	<-slow.begun
	if w := get(s, http.MethodGet, "/row/1", "localhost"); w.Code != 200 || !strings.Contains(w.Body.String(), "load this page again") || !strings.Contains(w.Body.String(), "train-gpt") {
		t.Errorf("%d %s", w.Code, w.Body.String())
	}
	close(slow.release)
	if w := <-first; !strings.Contains(w.Body.String(), "no longer kept") {
		t.Errorf("%s", w.Body.String())
	}
}

// TestWhyThereIsNoPicture: a job whose record is missing is not one that was never tried out.
func TestWhyThereIsNoPicture(t *testing.T) {
	s := &Server{config: Config{KeepsBundles: true}}
	ended, tried := decisionlog.Job{Finished: true}, []estimator.Estimate{{}}
	for want, story := range map[string]decisionlog.Story{
		"the job was not tried out": {Job: ended},
		"the job was tried out, but its record is no longer kept (web.keep_bundles)": {Job: ended, Estimates: tried, Probes: []decisionlog.Probe{{ReportedAt: time.Now()}}},
		"the job was tried out, but its record is no longer kept":                    {Job: ended, Estimates: tried},
		"no record came of the probe":                                                {Job: ended, Probes: []decisionlog.Probe{{Name: "x"}}},
	} {
		if got := s.whyNoPicture(story, fs.ErrNotExist); !strings.Contains(got, want) {
			t.Errorf("%q instead of %q", got, want)
		}
	}
}
