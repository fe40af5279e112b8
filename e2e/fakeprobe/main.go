// Fakeprobe stands in for gresize-probe where a test is about the daemon and
// not about what a probe finds: it fetches its job like a real one, and then
// does what the file "answer" beside it says.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/gresize/gresize/estimator/probe/inputs"
)

// answer is the file beside the program.
type answer struct {
	// DelaySeconds pass before the report.
	DelaySeconds float64 `json:"delay_seconds"`
	// Until, when not empty, is a file beside the program that must be there before the report.
	Until string `json:"until"`
	// Die ends the probe without a report.
	Die bool `json:"die"`
	// Bundles are what is sent, by the GPU on which the job is to be tried.
	Bundles map[string][]byte `json:"bundles"`
	// Reads are the files that the run is said to have read.
	Reads []string `json:"reads"`
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	executable, err := os.Executable()
	if err != nil {
		return err
	}
	data, err := os.ReadFile(filepath.Join(filepath.Dir(executable), "answer"))
	if err != nil {
		return err
	}
	var a answer
	if err := json.Unmarshal(data, &a); err != nil {
		return err
	}
	var job struct {
		Schema       string `json:"schema"`
		Script       []byte `json:"script"`
		GPU          string `json:"gpu"`
		RecordInputs bool   `json:"record_inputs"`
		Inputs       []byte `json:"inputs"`
		InputsOf     int64  `json:"inputs_of"`
	}
	if err := call(http.MethodGet, "", nil, &job); err != nil {
		return err
	}
	if job.Schema != "gresize.probejob/1" || !bytes.HasPrefix(job.Script, []byte("#!")) {
		return fmt.Errorf("job: schema %q, script %.20q", job.Schema, job.Script)
	}
	if list, err := inputs.Unpack(job.Inputs); err == nil {
		if changed, err := list.Changed(context.Background()); err == nil && changed == "" {
			return call(http.MethodPost, "/unchanged", fmt.Appendf(nil, `{"job":%d}`, job.InputsOf), nil)
		}
	}
	if job.RecordInputs && len(a.Reads) > 0 {
		list, err := inputs.Make(context.Background(), inputs.Seen{Read: a.Reads}, time.Now())
		if err != nil {
			return err
		}
		packed, err := list.Pack()
		if err != nil {
			return err
		}
		if err := call(http.MethodPost, "/inputs", packed, nil); err != nil {
			return err
		}
	}
	time.Sleep(time.Duration(a.DelaySeconds * float64(time.Second)))
	for a.Until != "" {
		if _, err := os.Stat(filepath.Join(filepath.Dir(executable), a.Until)); err == nil {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if a.Die {
		return fmt.Errorf("told to die")
	}
	return call(http.MethodPost, "/result", a.Bundles[job.GPU], nil)
}

// call asks the daemon, which may be away for a moment: a probe tries again. A job that it does not give is none.
func call(method, page string, body []byte, into any) (err error) {
	for range 100 {
		var refused refusal
		if err = callOnce(method, page, body, into); err == nil || method == http.MethodGet && errors.As(err, &refused) {
			return err
		}
		time.Sleep(200 * time.Millisecond)
	}
	return err
}

// refusal is an answer that is none.
type refusal string

func (r refusal) Error() string { return string(r) }

func callOnce(method, page string, body []byte, into any) error {
	request, err := http.NewRequest(method, os.Getenv("GRESIZE_PROBE_URL")+page, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+os.Getenv("GRESIZE_PROBE_KEY"))
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode >= 300 {
		return refusal(fmt.Sprintf("%s %s: %s", method, page, response.Status))
	}
	if into == nil {
		return nil
	}
	return json.NewDecoder(response.Body).Decode(into)
}
